package ops

import (
	"context"
	"crypto/subtle"
	"errors"
)

// KeyState says how our signing keys compare with QStash's.
type KeyState string

// The states.
const (
	KeysEqual   KeyState = "equal"
	KeysRotated KeyState = "rotated" // our next key is QStash's current one: deliveries pass, until the next rotation
	KeysStale   KeyState = "stale"   // our next key is not QStash's: the next rotation stops deliveries
	KeysWrong   KeyState = "wrong"   // deliveries are refused
)

// KeyCheck is the answer of KeysCheck. No key is shown.
type KeyCheck struct {
	State  KeyState `json:"state"`
	Detail string   `json:"detail"`
	Fix    string   `json:"fix,omitzero"`
}

const fixKeys = "store QStash's current and next key as QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY; the worker reads them within 5 minutes"

// KeysCheck compares the signing keys that the worker verifies with and those that QStash
// signs with.
func (o *Ops) KeysCheck(ctx context.Context, _ None) (KeyCheck, error) {
	if o.cfg.QStash == nil || o.cfg.Keys == nil {
		return KeyCheck{}, errors.New("QStash is not configured: set QSTASH_TOKEN, QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY, or use --stack NAME")
	}
	ours, err := o.cfg.Keys(ctx)
	if err != nil {
		return KeyCheck{}, err
	}
	theirs, err := o.cfg.QStash.SigningKeys(ctx)
	if err != nil {
		return KeyCheck{}, err
	}
	same := func(a, b string) bool { return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	switch {
	case same(ours.Current, theirs.Current) && same(ours.Next, theirs.Next):
		return KeyCheck{KeysEqual, "both keys are QStash's", ""}, nil
	case same(ours.Current, theirs.Current):
		return KeyCheck{KeysStale, "the next key is not QStash's: the next rotation would stop deliveries", fixKeys}, nil
	case same(ours.Next, theirs.Current):
		return KeyCheck{KeysRotated, "QStash has rotated its keys: deliveries pass by our next key, until it rotates again", fixKeys}, nil
	default:
		return KeyCheck{KeysWrong, "neither key is QStash's current one: every delivery is refused", fixKeys}, nil
	}
}
