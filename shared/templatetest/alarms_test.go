package templatetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hubsync/shared/telemetry"
)

func ownMetrics() map[string]telemetry.Metric {
	byName := map[string]telemetry.Metric{}
	for _, m := range telemetry.All() {
		byName[m.Name] = m
	}
	return byName
}

var page = regexp.MustCompile(`docs/runbook/[a-z-]+\.md$`)

func TestEveryAlarmNamesItsPageAndAMetricThatIs(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	named, metrics := map[string]bool{}, ownMetrics()
	for id := range e.ofType("AWS::CloudWatch::Alarm") {
		p := e.properties(id)
		path := page.FindString(fmt.Sprint(p["AlarmDescription"]))
		if _, err := os.Stat(filepath.Join(root, path)); path == "" || err != nil {
			t.Errorf("%s: %q names no page under docs/runbook", id, p["AlarmDescription"])
		}
		named[filepath.Base(path)] = true
		if len(list(p["AlarmActions"])) == 0 || p["TreatMissingData"] == nil {
			t.Errorf("%s tells nobody, or does not say what silence means", id)
		}
		if p["Namespace"] != telemetry.Namespace {
			continue
		}
		m, ok := metrics[fmt.Sprint(p["MetricName"])]
		var dimensions []string
		for _, d := range list(p["Dimensions"]) {
			dimensions = append(dimensions, fmt.Sprint(at(d, "Name")))
		}
		want := []string{telemetry.Environment}
		if m.Dimension != "" {
			want = append(want, m.Dimension)
		}
		if !ok || !slices.Equal(dimensions, want) {
			t.Errorf("%s: %v %v is no metric of package telemetry (%v)", id, p["MetricName"], dimensions, want)
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbook/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if name := filepath.Base(p); !named[name] && name != "README.md" {
			t.Errorf("docs/runbook/%s is the page of no alarm", name)
		}
	}
}

func TestThereIsAnAlarmForEverything(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	has := map[string]bool{}
	for id := range e.ofType("AWS::CloudWatch::Alarm") {
		p := e.properties(id)
		key := fmt.Sprint(p["Namespace"], "/", p["MetricName"])
		for _, d := range list(p["Dimensions"]) {
			if name := at(d, "Name"); name != telemetry.Environment {
				key += " " + canonical(at(d, "Value"))
			}
		}
		has[key] = true
		if p["MetricName"] == telemetry.SweepRuns.Name {
			if number(p["EvaluationPeriods"]) != 3 || number(p["Period"]) != 60 || p["TreatMissingData"] != "breaching" {
				t.Errorf("%s does not mean three periods without a sweep", id)
			}
		}
	}
	want := []string{
		"AWS/RDS/DatabaseConnectionsCurrentlySessionPinned {Ref=Proxy}", "AWS/ApiGateway/5xx {Ref=Api}",
		"AWS/SQS/ApproximateNumberOfMessagesVisible {Fn::GetAtt=[MissedSchedules QueueName]}",
		"AWS/SQS/ApproximateNumberOfMessagesVisible {Fn::GetAtt=[FailedInvocations QueueName]}",
	}
	for _, lane := range []string{"optout", "live", "bulk"} {
		want = append(want, "hubsync/"+telemetry.OldestUnconverged.Name+" "+lane)
	}
	for _, m := range []telemetry.Metric{telemetry.DeadEvents, telemetry.DriftListed, telemetry.ChecksHeld, telemetry.SweepRuns, telemetry.RelayRuns,
		telemetry.BudgetExhausted, telemetry.SignatureFailures, telemetry.PublishFailures, telemetry.PortalsPaused} {
		want = append(want, "hubsync/"+m.Name)
	}
	for _, stage := range stages {
		for _, metric := range []string{"Errors", "Throttles"} {
			want = append(want, "AWS/Lambda/"+metric+" {Fn::Sub=${AWS::StackName}-"+stage+"}")
		}
	}
	for _, w := range want {
		if !has[w] {
			t.Errorf("no alarm on %s", w)
		}
	}
}

func TestDashboardShowsMetricsThatAre(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	body := fmt.Sprint(at(e.properties("Dashboard"), "DashboardBody", "Fn::Sub"))
	var board struct {
		Widgets []struct {
			Properties struct {
				Title   string
				Metrics [][]string
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &board); err != nil {
		t.Fatal(err)
	}
	metrics, shown := ownMetrics(), map[string]bool{}
	for _, w := range board.Widgets {
		for _, m := range w.Properties.Metrics {
			if m[0] != telemetry.Namespace {
				continue
			}
			known, ok := metrics[m[1]]
			if want := map[bool]int{true: 4, false: 6}[known.Dimension == ""]; !ok || len(m) != want {
				t.Errorf("%s: %s is no metric of package telemetry", w.Properties.Title, strings.Join(m, " "))
			}
			shown[m[1]] = true
		}
	}
	for name := range metrics {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
