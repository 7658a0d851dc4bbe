package templatetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hubsync/shared/intake"
	"hubsync/shared/reconcile"
	"hubsync/shared/webhook"
)

// TestAPIHasTheRoutesOfTheHandlers compares the API's routes with intake's. Whoever adds a
// route there adds one to template.yaml, and thinks about who may call it.
func TestAPIHasTheRoutesOfTheHandlers(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	got := map[string]string{}
	for id := range e.ofType("AWS::ApiGatewayV2::Route") {
		p := e.properties(id)
		got[fmt.Sprint(p["RouteKey"])] = canonical(p["AuthorizationType"]) + " " + fmt.Sprint(at(p, "Target", "Fn::Sub"))
	}
	want := map[string]string{
		"GET " + reconcile.Path: "NONE integrations/${ReconcileIntegration}", "POST " + webhook.Path: "NONE integrations/${IntakeIntegration}",
	}
	for _, route := range intake.Routes() {
		method, path, _ := strings.Cut(route, " ")
		want[method+" "+path] = "NONE integrations/${IntakeIntegration}"
		if strings.HasPrefix(path, "/v1/") {
			want[method+" "+path] = "{Fn::If=[UseJwt JWT AWS_IAM]} integrations/${IntakeIntegration}"
		}
	}
	for key, w := range want {
		if got[key] != w {
			t.Errorf("template.yaml: route %q is %q, want %q", key, got[key], w)
		}
	}
	for key := range got {
		if want[key] == "" {
			t.Errorf("template.yaml: route %q is served by nobody", key)
		}
	}
}

func TestAccessLogHasNoPathAndTheStageThrottles(t *testing.T) {
	t.Parallel()
	p := expand(t, loadTemplate(t)).properties("ApiStage")
	format := fmt.Sprint(at(p, "AccessLogSettings", "Format"))
	for _, banned := range []string{"$context.path", "$context.identity", "$context.authorizer", "$context.integration.error", "$context.domainName"} {
		if strings.Contains(format, banned) {
			t.Errorf("the access log shows %s: paths carry keys and tokens", banned)
		}
	}
	if !strings.Contains(format, "$context.routeKey") || strings.Contains(format, "\n") {
		t.Errorf("access log format %q", format)
	}
	settings := at(p, "DefaultRouteSettings")
	if at(settings, "ThrottlingRateLimit") == nil || at(settings, "ThrottlingBurstLimit") == nil {
		t.Error("the API does not throttle")
	}
	if !slices.Contains(list(at(expand(t, loadTemplate(t)).properties("JwtAuthorizer"), "IdentitySource")), any("$request.header.Authorization")) {
		t.Error("the token is not read from the Authorization header")
	}
}
