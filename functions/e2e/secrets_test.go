package e2e

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"hubsync/shared/config/secrettest"
	"hubsync/shared/qstash/qstashtest"
)

// leastAge is how old a secret must be before a refusal has it fetched anew.
const leastAge = 5 * time.Second

// stored moves a world's secrets into a Secrets Manager, and puts a gate that asks for
// the password before its database.
func stored(store *secrettest.Server, g **gate) change {
	return func(w *world) {
		*g = openGate(w.t, w.holes["postgres"].addr, nil, only("hubsync", "first"))
		w.putDatabase(store, *g, "hubsync", "first")
		for _, name := range []string{"QSTASH_TOKEN", "QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY", "HUBSPOT_TOKEN_MAIN"} {
			store.Put(name, w.vars[name])
		}
		for _, name := range []string{"QSTASH_TOKEN", "QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY", "HUBSPOT_TOKEN_MAIN", "DATABASE_URL"} {
			delete(w.vars, name)
			w.vars[name+"_SECRET_ARN"] = secrettest.ARN(name)
		}
		w.vars["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = store.URL
		w.vars["AWS_ACCESS_KEY_ID"], w.vars["AWS_SECRET_ACCESS_KEY"] = "AKIDEXAMPLE", "example"
	}
}

func only(user, password string) func(string, string) bool {
	return func(u, p string) bool { return u == user && p == password }
}

func (w *world) putDatabase(store *secrettest.Server, g *gate, user, password string) {
	w.t.Helper()
	u, err := url.Parse(w.database)
	if err != nil {
		w.t.Fatal(err)
	}
	u.Host, u.User = g.addr, url.UserPassword(user, password)
	store.Put("DATABASE_URL", u.String())
}

func TestARotationOfEverySecretRefusesNothing(t *testing.T) {
	t.Parallel()
	store := secrettest.Start(t)
	var g *gate
	w := newWorld(t, stored(store, &g))
	mustAccept(t, w, "before@example.com")
	w.settle()
	environments := w.functions["intake"].Environments() + w.functions["worker"].Environments()
	time.Sleep(leastAge + 200*time.Millisecond)

	// All at once, and QStash's pair twice: neither key that the worker holds is valid.
	w.rotateKeys()
	current, next := w.rotateKeys(), w.nextKey()
	store.Put("QSTASH_CURRENT_SIGNING_KEY", current)
	store.Put("QSTASH_NEXT_SIGNING_KEY", next)
	w.hubspot.SetToken("main", "the-second-one")
	store.Put("HUBSPOT_TOKEN_MAIN", "the-second-one")
	g.setAdmits(only("hubsync_other", "the-second-one"))
	w.putDatabase(store, g, "hubsync_other", "the-second-one")

	calls := len(w.hubspot.Ledger())
	mustAccept(t, w, "after@example.com")
	w.settle()
	if got := w.status("after@example.com"); got != "SUBSCRIBED" {
		t.Errorf("HubSpot has %q", got)
	}
	if s := w.qstash.Stats(); s.Retried != 0 || s.Dead != 0 {
		t.Errorf("QStash had to deliver again: %+v", s)
	}
	if n := w.functions["intake"].Environments() + w.functions["worker"].Environments(); n != environments {
		t.Errorf("%d environments, there were %d: something was restarted", n, environments)
	}
	if paused := w.text(`SELECT count(*)::text FROM hubspot_portals WHERE paused_until > now()`); paused != "0" {
		t.Error("the portal is paused")
	}
	refused := 0
	for _, c := range w.hubspot.Ledger()[calls:] {
		if c.Status == http.StatusUnauthorized {
			refused++
		}
	}
	if refused > 1 {
		t.Errorf("HubSpot refused %d calls, one is what it costs to find out", refused)
	}
	if strings.Contains(w.log.String(), "the-second-one") || strings.Contains(w.log.String(), current) {
		t.Error("a secret is in the log")
	}
}

// rotateKeys rotates QStash's pair and returns the current key.
func (w *world) rotateKeys() string { return w.keys(http.MethodPost, "/v2/keys/rotate")[0] }

func (w *world) nextKey() string { return w.keys(http.MethodGet, "/v2/keys")[1] }

func (w *world) keys(method, path string) [2]string {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.vars["QSTASH_URL"]+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+qstashtest.DefaultToken)
	code, body := w.do(r)
	fields := strings.Split(body, `"`) // {"current":"…","next":"…"}
	if code != http.StatusOK || len(fields) < 8 {
		w.t.Fatalf("%d %s", code, body)
	}
	return [2]string{fields[3], fields[7]}
}

func TestAnOutageOfTheSecretStoreStopsNothing(t *testing.T) {
	t.Parallel()
	store := secrettest.Start(t)
	var g *gate
	w := newWorld(t, stored(store, &g))
	mustAccept(t, w, "before@example.com")
	w.settle()
	time.Sleep(leastAge + 200*time.Millisecond)
	store.SetAway(true)
	calls := store.Calls()
	for range 3 { // a false signature has the keys fetched anew, in vain
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.workerURL, strings.NewReader(`{"eventIds":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Upstash-Signature", falseSignature)
		if code, body := w.do(r); code != http.StatusUnauthorized {
			t.Errorf("a false signature: %d %s", code, body)
		}
	}
	mustAccept(t, w, "during@example.com")
	w.settle()
	if got := w.status("during@example.com"); got != "SUBSCRIBED" {
		t.Errorf("HubSpot has %q", got)
	}
	if store.Calls() == calls {
		t.Error("the false signatures had nothing fetched: this test shows nothing")
	}
}

// falseSignature is a well-formed token under another key.
const falseSignature = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJVcHN0YXNoIn0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestIAMTokensOverVerifiedTLS(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host    string // of the certificate
		trusted bool
		works   bool
	}{
		"the right certificate": {"localhost", true, true},
		"another host's":        {"other.example.com", true, false},
		"nobody's":              {"localhost", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := newAuthority(t), newAuthority(t)
			signer := ours
			if !tc.trusted {
				signer = theirs
			}
			var g *gate
			w := newWorld(t, func(w *world) {
				g = openGate(t, w.holes["postgres"].addr, signer.issue(t, tc.host), func(user, password string) bool {
					return user == "hubsync_intake" && strings.Contains(password, "X-Amz-Signature=")
				})
				_, port, err := net.SplitHostPort(g.addr)
				if err != nil {
					t.Fatal(err)
				}
				delete(w.vars, "DATABASE_URL")
				for name, value := range map[string]string{
					"DB_IAM_AUTH": "true", "PGHOST": "localhost", "PGPORT": port, "PGUSER": "hubsync_intake", "SSL_CERT_FILE": ours.file, "SSL_CERT_DIR": "/nonexistent",
					"PGDATABASE": w.pool.Config().ConnConfig.Database, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example", "AWS_SESSION_TOKEN": "session",
				} {
					w.vars[name] = value
				}
			})
			code, body := w.postOnce("k1", "iam@example.com", "subscribed")
			if !tc.works {
				if code != http.StatusServiceUnavailable || len(g.seen()) != 0 {
					t.Errorf("%d %s; %d passwords were shown", code, body, len(g.seen()))
				}
				return
			}
			if code != http.StatusAccepted {
				t.Fatalf("%d %s", code, body)
			}
			time.Sleep(idleBound + 200*time.Millisecond) // a new connection, a new token
			if code, body = w.postOnce("k2", "iam@example.com", "unsubscribed"); code != http.StatusAccepted {
				t.Fatalf("%d %s", code, body)
			}
			checkTokens(t, g)
		})
	}
}

func checkTokens(t *testing.T, g *gate) {
	t.Helper()
	_, port, err := net.SplitHostPort(g.addr)
	if err != nil {
		t.Fatal(err)
	}
	shown := g.seen()
	if len(shown) != 2 || shown[0] == shown[1] {
		t.Errorf("%d connections, the same token: %v", len(shown), len(shown) == 2)
	}
	for _, c := range shown {
		u, err := url.Parse("https://" + c.password)
		if err != nil {
			t.Fatal("the password is no token")
		}
		q := u.Query()
		if u.Host != "localhost:"+port || q.Get("Action") != "connect" || q.Get("DBUser") != "hubsync_intake" || q.Get("X-Amz-Expires") != "900" ||
			q.Get("X-Amz-Security-Token") != "session" || !strings.HasSuffix(q.Get("X-Amz-Credential"), "/eu-central-1/rds-db/aws4_request") {
			t.Errorf("a token for %s: %v", u.Host, q)
		}
	}
}
