package intake

import (
	"net/http"
	"strings"
	"testing"
)

// TestAKeyWhoseRequestMovedToHistory: honoured, then refused, and nothing is stored.
func TestAKeyWhoseRequestMovedToHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	content := bodyOf("usr_1", "ann@example.com", "newsletter", "unsubscribed", "")
	first := w.receipt(w.post("key-1", content))
	w.exec(`INSERT INTO settled_keys SELECT hubsync.key_hash_v1(brand_id, product_id, idempotency_key), id, request_hash, sync_status, sequence, created_at FROM subscription_requests`)
	w.exec(`DELETE FROM hubspot_outbox_events`)
	w.exec(`DELETE FROM subscription_requests`)

	again := w.post("key-1", content)
	if receipt := w.receipt(again); again.Code != http.StatusOK || !receipt.Replayed || receipt.RequestID != first.RequestID {
		t.Errorf("the same again: %d %s", again.Code, again.Body)
	}
	if other := w.post("key-1", bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", "2026-01-01T00:00:00Z")); other.Code != http.StatusUnprocessableEntity {
		t.Errorf("another body: %d %s", other.Code, other.Body)
	}
	w.exec(`UPDATE settled_keys SET accepted_at = now() - interval '401 days'`)
	if late := w.post("key-1", content); late.Code != http.StatusGone || !strings.Contains(late.Body.String(), "key-expired") {
		t.Errorf("after 401 days: %d %s", late.Code, late.Body)
	}
	if n := one[int](w, `SELECT count(*) FROM subscription_requests`); n != 0 {
		t.Errorf("%d requests were stored", n)
	}
}
