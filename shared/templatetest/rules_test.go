package templatetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// stages are the functions, by the name of their folder.
var stages = []string{"admin", "intake", "reconcile", "relay", "worker"}

func logicalID(stage string) string { return strings.ToUpper(stage[:1]) + stage[1:] + "Function" }

func TestFunctionsAreArmWithRetainedLogsAndARoleEach(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	if len(e.functions) != len(stages) {
		t.Errorf("%d functions, want %d", len(e.functions), len(stages))
	}
	roles := map[string]bool{}
	for _, stage := range stages {
		p := e.properties(logicalID(stage))
		if at(p, "Runtime") != "provided.al2023" || at(p, "Handler") != "bootstrap" || canonical(p["Architectures"]) != "[arm64]" {
			t.Errorf("%s: %v %v %v", stage, p["Runtime"], p["Handler"], p["Architectures"])
		}
		if canonical(p["FunctionName"]) != "{Fn::Sub=${AWS::StackName}-"+stage+"}" {
			t.Errorf("%s is named %s: the operators' tool looks for STACK-%s", stage, canonical(p["FunctionName"]), stage)
		}
		if at(p, "LoggingConfig", "LogFormat") != "JSON" {
			t.Errorf("%s does not log JSON", stage)
		}
		group := e.properties(fmt.Sprint(at(p, "LoggingConfig", "LogGroup", "Ref")))
		if canonical(group["LogGroupName"]) != "{Fn::Sub=/aws/lambda/${AWS::StackName}-"+stage+"}" {
			t.Errorf("%s logs to %s", stage, canonical(group["LogGroupName"]))
		}
		role := canonical(p["Role"])
		if roles[role] || !strings.Contains(role, "Arn") {
			t.Errorf("%s has no role of its own: %s", stage, role)
		}
		roles[role] = true
		if stage != "admin" && !slices.Contains(list(at(e.resources, logicalID(stage), "DependsOn")), any("Migration")) {
			t.Errorf("%s does not wait for the migration", stage)
		}
	}
	groups := e.ofType("AWS::Logs::LogGroup")
	for id := range groups {
		if e.properties(id)["RetentionInDays"] == nil {
			t.Errorf("%s keeps its lines for ever", id)
		}
	}
	if len(groups) != len(stages)+1 {
		t.Errorf("%d log groups, want one a function and one of the API", len(groups))
	}
}

func TestTimedRunsAreNeverRepeatedAndNeverLostInSilence(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	schedules := e.ofType("AWS::Scheduler::Schedule")
	if len(schedules) != 2 {
		t.Errorf("%d schedules, want those of relay and reconcile", len(schedules))
	}
	for id := range schedules {
		p := e.properties(id)
		// EventBridge knows no seconds: rate(30 seconds) is refused only at deployment.
		if p["ScheduleExpression"] != "rate(1 minute)" {
			t.Errorf("%s: %v", id, p["ScheduleExpression"])
		}
		if !strings.Contains(canonical(p["Name"]), "AWS::StackName") {
			t.Errorf("%s: name %s is the same for every stack of an account", id, canonical(p["Name"]))
		}
		retry := at(p, "Target", "RetryPolicy")
		if number(at(retry, "MaximumRetryAttempts")) != 0 || number(at(retry, "MaximumEventAgeInSeconds")) > 60 {
			t.Errorf("%s: retry policy %v", id, retry)
		}
		judgeQueue(t, e, id, at(p, "Target", "DeadLetterConfig", "Arn"))
	}
	configs := e.ofType("AWS::Lambda::EventInvokeConfig")
	if len(configs) != len(stages) {
		t.Errorf("%d functions say what becomes of a failed run", len(configs))
	}
	for id := range configs {
		p := e.properties(id)
		age := number(p["MaximumEventAgeInSeconds"])
		if number(p["MaximumRetryAttempts"]) != 0 || age < 0 || age > 60 || p["Qualifier"] != "live" {
			t.Errorf("%s: %v", id, p)
		}
		judgeQueue(t, e, id, at(p, "DestinationConfig", "OnFailure", "Destination"))
	}
	// A run ends before the next one begins, and QStash waits longer than the worker works.
	for stage, most := range map[string]int{"relay": 59, "reconcile": 59, "intake": 20, "worker": 75, "admin": 900} {
		if got := number(e.properties(logicalID(stage))["Timeout"]); got > most || got <= 0 {
			t.Errorf("%s: timeout %d s", stage, got)
		}
	}
}

// judgeQueue checks that a dead-letter queue is one of ours, encrypted, kept for two weeks.
func judgeQueue(t *testing.T, e expanded, id string, arn any) {
	t.Helper()
	parts := list(at(arn, "Fn::GetAtt"))
	if len(parts) != 2 {
		t.Errorf("%s has no dead-letter queue", id)
		return
	}
	queue := e.properties(fmt.Sprint(parts[0]))
	if queue["SqsManagedSseEnabled"] != true || number(queue["MessageRetentionPeriod"]) != 1209600 {
		t.Errorf("%s: queue %v is not encrypted, or forgets too soon", id, queue)
	}
}

func TestWorkerURLHasBothPermissions(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	urls := e.ofType("AWS::Lambda::Url")
	if len(urls) != 1 || e.properties("WorkerFunctionUrl")["AuthType"] != "NONE" {
		t.Errorf("function URLs: %v", urls)
	}
	public := map[string]string{}
	for id := range e.ofType("AWS::Lambda::Permission") {
		if p := e.properties(id); p["Principal"] == "*" {
			public[fmt.Sprint(p["Action"])] = canonical(p["FunctionName"]) + fmt.Sprint(p["FunctionUrlAuthType"], p["InvokedViaFunctionUrl"])
		}
	}
	want := map[string]string{
		"lambda:InvokeFunctionUrl": "{Ref=WorkerFunctionAliaslive}NONE<nil>",
		"lambda:InvokeFunction":    "{Ref=WorkerFunctionAliaslive}<nil> true",
	}
	if fmt.Sprint(public) != fmt.Sprint(want) {
		t.Errorf("public permissions %v, want %v", public, want)
	}
}

func TestWhatIsStoredIsEncrypted(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	db := e.properties("Database")
	if db["StorageEncrypted"] != true || db["PubliclyAccessible"] != false || db["ManageMasterUserPassword"] != true || db["EnableIAMDatabaseAuthentication"] != true {
		t.Error("the database is not encrypted, is public, or has a password of its own")
	}
	if db["MasterUserPassword"] != nil || at(e.resources, "Database", "DeletionPolicy") != "Snapshot" {
		t.Error("the database has a password in the template, or goes without a snapshot")
	}
	settings := at(e.properties("DatabaseParameters"), "Parameters")
	for name, want := range map[string]string{"rds.force_ssl": "1", "log_error_verbosity": "terse", "log_parameter_max_length": "0", "log_parameter_max_length_on_error": "0"} {
		if got := fmt.Sprint(at(settings, name)); got != want {
			t.Errorf("%s = %s, want %s: an address would show", name, got, want)
		}
	}
	proxy := e.properties("Proxy")
	if proxy["DefaultAuthScheme"] != "IAM_AUTH" || proxy["RequireTLS"] != true {
		t.Error("the proxy lets in who has no IAM token, or no TLS")
	}
	for id := range e.ofType("AWS::SNS::Topic") {
		if e.properties(id)["KmsMasterKeyId"] == nil {
			t.Errorf("topic %s is not encrypted", id)
		}
	}
	for id := range e.ofType("AWS::SecretsManager::Secret") {
		if p := e.properties(id); p["SecretString"] != nil || at(e.resources, id, "DeletionPolicy") != "RetainExceptOnCreate" {
			t.Errorf("secret %s stands in the template, or goes with the stack", id)
		}
	}
	// A dynamic reference would freeze a secret at deployment.
	walk("", e.resources, func(path string, v any) {
		if text, ok := v.(string); ok && strings.Contains(text, "{{resolve:") {
			t.Errorf("%s resolves a secret at deployment", path)
		}
	})
}

func TestReservedConcurrencyOnlyWhereAParameterAsks(t *testing.T) {
	t.Parallel()
	template := loadTemplate(t)
	e := expand(t, template)
	for _, stage := range stages {
		reserved := e.properties(logicalID(stage))["ReservedConcurrentExecutions"]
		if reserved == nil {
			continue
		}
		name := strings.ToUpper(stage[:1]) + stage[1:]
		want := "{Fn::If=[Reserve" + name + " {Ref=" + name + "Concurrency} {Ref=AWS::NoValue}]}"
		if canonical(reserved) != want || fmt.Sprint(at(template, "Parameters", name+"Concurrency", "Default")) != "0" {
			t.Errorf("%s reserves %s", stage, canonical(reserved))
		}
	}
	for _, stage := range stages {
		canary := at(template, "Resources", logicalID(stage), "Properties", "DeploymentPreference")
		if wants := stage == "intake" || stage == "worker"; (canary != nil) != wants {
			t.Errorf("%s: canary %v", stage, canary)
		} else if wants && len(list(at(canary, "Alarms"))) == 0 {
			t.Errorf("%s: a canary without alarms", stage)
		}
	}
}
