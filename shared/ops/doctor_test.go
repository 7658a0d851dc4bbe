package ops

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func (d Diagnosis) text() string {
	var b strings.Builder
	for _, h := range d.Checks {
		sign := "ok "
		if !h.OK {
			sign = "bad "
		}
		b.WriteString(sign + h.Name + ": " + h.Detail + " → " + h.Fix + "\n")
	}
	return b.String()
}

func TestDoctorSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	w.exec(`INSERT INTO reconcile_runs (id, kind) VALUES (gen_random_uuid(), 'sweep')`)
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"all is well":         {nil, "ok hubspot main: account 12345"},
		"nothing is set":      {map[string]string{"HUBSYNC_ENV": "", "DATABASE_URL": "", "REDIS_URL": "", "QSTASH_TOKEN": "", "QSTASH_CURRENT_SIGNING_KEY": ""}, "bad database: configuration: neither DATABASE_URL"},
		"Redis is away":       {map[string]string{"REDIS_URL": "redis://127.0.0.1:1"}, "bad redis: no answer to PING"},
		"Redis by bad URL":    {map[string]string{"REDIS_URL": "localhost"}, "bad redis: REDIS_URL cannot be read"},
		"QStash is away":      {map[string]string{"QSTASH_URL": "http://127.0.0.1:1"}, "bad qstash: qstash:"},
		"QStash's token":      {map[string]string{"QSTASH_TOKEN": "other"}, "bad qstash: qstash: the token is refused"},
		"QStash's keys":       {map[string]string{"QSTASH_CURRENT_SIGNING_KEY": "sig_other"}, "neither key is QStash's current one"},
		"HubSpot is away":     {map[string]string{"HUBSPOT_BASE_URL": "http://127.0.0.1:1"}, "bad hubspot main: hubspot: read account: portal main: no answer"},
		"HubSpot's token":     {map[string]string{"HUBSPOT_TOKEN_MAIN": "old"}, "put the app's current token into the secret of portal main"},
		"no token at all":     {map[string]string{"HUBSPOT_TOKEN_MAIN": ""}, "HUBSPOT_TOKEN_MAIN"},
		"a secret by its ARN": {map[string]string{"QSTASH_TOKEN": "", "QSTASH_TOKEN_SECRET_ARN": "arn:x"}, "no secret store can be reached here"},
	} {
		t.Run(name, func(t *testing.T) {
			env := maps.Clone(w.env)
			maps.Copy(env, tc.env)
			d, err := w.open(env).Doctor(t.Context(), None{})
			if err != nil || !strings.Contains(d.text(), tc.want) {
				t.Errorf("%v, does not say %q:\n%s", err, tc.want, d.text())
			}
			if d.OK != (tc.env == nil) {
				t.Errorf("ok is %v:\n%s", d.OK, d.text())
			}
			for _, h := range d.Checks {
				if !h.OK && h.Fix == "" {
					t.Errorf("no fix: %+v", h)
				}
			}
		})
	}
}

// The database is there, and what runs on it is not as it must be.
func TestDoctorLooksAtTheTimers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	if d, err := w.Doctor(t.Context(), None{}); err != nil || !strings.Contains(d.text(), "bad reconcile: it has never run") {
		t.Errorf("%v %s", err, d.text())
	}
	w.exec(`INSERT INTO reconcile_runs (id, kind, started_at) VALUES (gen_random_uuid(), 'sweep', now() - interval '1 hour')`)
	w.exec(`UPDATE goose_db_version SET is_applied = false WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	w.exec(`UPDATE hubspot_portals SET paused_until = 'infinity', pause_reason = 'the token is refused'`)
	d, err := w.Doctor(t.Context(), None{})
	for _, want := range []string{"bad reconcile: its last run was 1h", "run 'hubsync migrate'", "it is paused until"} {
		if err != nil || !strings.Contains(d.text(), want) {
			t.Errorf("%v, does not say %q:\n%s", err, want, d.text())
		}
	}
	w.cfg.Clock = func() time.Time { return time.Now().Add(2 * time.Minute) }
	w.exec(`UPDATE goose_db_version SET is_applied = true`)
	if d, err = w.Doctor(t.Context(), None{}); err != nil || !strings.Contains(d.text(), "its clock and this machine's differ by 2m") {
		t.Errorf("%v %s", err, d.text())
	}
}

func TestKeysCheckKnowsARotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	current, next := w.env["QSTASH_CURRENT_SIGNING_KEY"], w.env["QSTASH_NEXT_SIGNING_KEY"]
	for want, keys := range map[KeyState][2]string{
		KeysEqual: {current, next}, KeysStale: {current, "sig_old"}, KeysRotated: {"sig_old", current}, KeysWrong: {"sig_old", "sig_older"},
	} {
		env := maps.Clone(w.env)
		env["QSTASH_CURRENT_SIGNING_KEY"], env["QSTASH_NEXT_SIGNING_KEY"] = keys[0], keys[1]
		k, err := w.open(env).KeysCheck(t.Context(), None{})
		if err != nil || k.State != want || strings.Contains(k.Detail, "sig_") {
			t.Errorf("%s: %+v %v", want, k, err)
		}
	}
}
