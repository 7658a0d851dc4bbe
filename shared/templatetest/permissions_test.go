package templatetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exceptions are the only statements that may name "*" as a resource: EC2 has nothing
// narrower for these actions, a denial may be wide, and in a key's policy "*" is the key.
var exceptions = []string{
	"NetworkPolicy Allow ec2:DescribeNetworkInterfaces ec2:DescribeSubnets",
	"NetworkPolicy Deny",
	"AlarmKey Allow",
}

// mayEndOpen are resources whose end is not known to the template: AWS makes up the end of
// a log stream, of a network interface, of a secret's ARN and of an API's stage.
var mayEndOpen = regexp.MustCompile(`:log-stream:\*$|:ec2:[^*]*:\*/\*$|/hubspot-token/\*$|:function:\$\{AWS::StackName\}-\*$|:\$\{Api\}/\*/`)

func TestNoWildcards(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	walk("", e.resources, func(path string, v any) {
		statement, ok := v.(object)
		if !ok || statement["Effect"] == nil {
			return
		}
		id := strings.Split(path, "/")[1]
		label := fmt.Sprint(id, " ", statement["Effect"])
		for _, action := range list(statement["Action"]) {
			if strings.Contains(fmt.Sprint(action), "*") {
				t.Errorf("%s: action %s", path, action)
			}
			label += " " + fmt.Sprint(action)
		}
		if statement["NotAction"] != nil || statement["NotResource"] != nil {
			t.Errorf("%s: a statement by what it leaves out", path)
		}
		for _, resource := range list(statement["Resource"]) {
			judgeResource(t, path, label, resource)
		}
	})
	for id := range e.ofType("AWS::Lambda::Permission") {
		p := e.properties(id)
		if p["Principal"] != "*" && p["SourceArn"] == nil {
			t.Errorf("%s lets every account's %v in", id, p["Principal"])
		}
	}
}

func judgeResource(t *testing.T, path, label string, resource any) {
	t.Helper()
	if resource == "*" {
		if !slices.ContainsFunc(exceptions, func(x string) bool { return strings.HasPrefix(label, x) }) {
			t.Errorf("%s: %s on every resource", path, label)
		}
		return
	}
	text := fmt.Sprint(resource)
	if sub := at(resource, "Fn::Sub"); sub != nil {
		text = fmt.Sprint(list(sub)[0])
	}
	if strings.Contains(text, "*") && !mayEndOpen.MatchString(text) {
		t.Errorf("%s: resource %s", path, text)
	}
}

// TestEachFunctionMayDoItsOwnOnly compares the actions and secrets of each role with what
// its function does. A new right needs a line here.
func TestEachFunctionMayDoItsOwnOnly(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	always := []string{"logs:CreateLogStream", "logs:PutLogEvents", "sqs:SendMessage"}
	for role, want := range map[string]struct{ actions, names []string }{
		"AdminRole":  {[]string{"secretsmanager:GetSecretValue"}, []string{"MasterUserSecret"}},
		"IntakeRole": {[]string{"rds-db:connect", "secretsmanager:GetSecretValue"}, []string{"/hubsync_intake", "HubSpotWebhookSecret"}},
		"RelayRole":  {[]string{"rds-db:connect", "secretsmanager:GetSecretValue"}, []string{"/hubsync_relay", "QStashTokenSecret"}},
		"WorkerRole": {[]string{"rds-db:connect", "secretsmanager:GetSecretValue"},
			[]string{"/hubsync_worker", "QStashCurrentKeySecret", "QStashNextKeySecret", "RedisUrlSecret", "/hubspot-token/"}},
		"ReconcileRole": {[]string{"rds-db:connect", "secretsmanager:GetSecretValue"}, []string{"/hubsync_reconcile", "RedisUrlSecret", "CronSecret", "/hubspot-token/"}},
	} {
		p := e.properties(role)
		if canonical(p["ManagedPolicyArns"]) != "[{Ref=NetworkPolicy}]" {
			t.Errorf("%s: managed policies %s", role, canonical(p["ManagedPolicyArns"]))
		}
		got, resources := []string{}, ""
		for _, policy := range list(p["Policies"]) {
			for _, s := range list(at(policy, "PolicyDocument", "Statement")) {
				for _, action := range list(at(s, "Action")) {
					got = append(got, fmt.Sprint(action))
				}
				resources += canonical(at(s, "Resource"))
			}
		}
		slices.Sort(got)
		if wanted := slices.Sorted(slices.Values(append(want.actions, always...))); !slices.Equal(got, wanted) {
			t.Errorf("%s may %v, want %v", role, got, wanted)
		}
		for _, mark := range []string{"MasterUserSecret", "/hubsync_intake", "/hubsync_relay", "/hubsync_worker", "/hubsync_reconcile",
			"QStashTokenSecret", "QStashCurrentKeySecret", "QStashNextKeySecret", "RedisUrlSecret", "CronSecret", "HubSpotWebhookSecret", "/hubspot-token/"} {
			if has, wants := strings.Contains(resources, mark), slices.Contains(want.names, mark); has != wants {
				t.Errorf("%s and %s: %v, want %v", role, mark, has, wants)
			}
		}
	}
}
