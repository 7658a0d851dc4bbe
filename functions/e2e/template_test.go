package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hubsync/shared/lambdatest"
	"hubsync/shared/templatetest"
)

const ownURL = "https://abcdefghijklmnop2345.lambda-url.eu-central-1.on.aws/"

// TestTemplatesVariablesStartEveryFunction starts each function with the variables that
// template.yaml gives it and nothing else but what Lambda sets.
func TestTemplatesVariablesStartEveryFunction(t *testing.T) {
	t.Parallel()
	template, err := templatetest.Load("../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	secrets := secretsManager(t)
	for _, stage := range []string{"admin", "intake", "relay", "worker", "reconcile"} {
		variables := variablesOf(template, stage)
		env := []string{"AWS_ACCESS_KEY_ID=example", "AWS_SECRET_ACCESS_KEY=example", "AWS_ENDPOINT_URL_SECRETS_MANAGER=" + secrets}
		for name, v := range variables {
			env = append(env, name+"="+standIn(template, v))
			if !readsVariable(t, stage, name) {
				t.Errorf("template.yaml gives %s the variable %s, which it does not read", stage, name)
			}
		}
		log := &safeBuffer{}
		f, err := lambdatest.New(lambdatest.Config{Name: stage, Bootstrap: lambdatest.Bootstrap(bootstraps, stage), Env: env, Timeout: 2 * time.Second, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		_, err = f.Invoke(t.Context(), []byte(`{}`))
		var failure *lambdatest.FunctionError
		if errors.As(err, &failure) && (failure.Type == lambdatest.TypeInit || failure.Type == lambdatest.TypeExit) || strings.Contains(log.String(), "does not start") {
			t.Errorf("%s does not start with the template's variables: %v\n%s", stage, err, log)
		}
	}
}

// variablesOf are the variables of Globals and of the function itself.
func variablesOf(template map[string]any, stage string) map[string]any {
	all := map[string]any{}
	maps.Copy(all, below(template, "Globals", "Function", "Environment", "Variables"))
	maps.Copy(all, below(template, "Resources", strings.ToUpper(stage[:1])+stage[1:]+"Function", "Properties", "Environment", "Variables"))
	return all
}

func below(m map[string]any, path ...string) map[string]any {
	for _, key := range path {
		m, _ = m[key].(map[string]any)
	}
	return m
}

// standIn is a value of the form that CloudFormation would put in.
func standIn(template map[string]any, v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	if ref, ok := m["Ref"].(string); ok {
		if parameter := below(template, "Parameters", ref); parameter != nil {
			return fmt.Sprint(parameter["Default"])
		}
		return "arn:aws:secretsmanager:eu-central-1:123456789012:secret:hubsync/" + ref
	}
	if parts, ok := m["Fn::GetAtt"].([]any); ok {
		if parts[1] == "MasterUserSecret.SecretArn" {
			return "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds"
		}
		return "database.invalid"
	}
	if parts, ok := m["Fn::If"].([]any); ok {
		return standIn(template, parts[1])
	}
	text := fmt.Sprint(m["Fn::Sub"])
	return strings.NewReplacer("${AWS::StackName}", "hubsync", "${Api}", "a1b2c3", "${AWS::Region}", "eu-central-1", "${AWS::URLSuffix}", "example.com", "${WorkerFunctionUrl.FunctionUrl}", ownURL).Replace(text)
}

// readsVariable reports whether the sources that a function's configuration is read by
// name the variable, with or without the suffix of a secret.
func readsVariable(t *testing.T, stage, name string) bool {
	t.Helper()
	files := []string{"../" + stage + "/main.go", "../../shared/config/config.go"}
	more, err := filepath.Glob("../internal/clients/*.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(append(files, more...), func(path string) bool {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), `"`+name+`"`) || strings.Contains(string(text), `"`+strings.TrimSuffix(name, "_SECRET_ARN")+`"`)
	})
}

// secretsManager answers GetSecretValue for every secret.
func secretsManager(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var asked struct{ SecretId string }
		if json.Unmarshal(body, &asked) != nil || r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue" {
			t.Errorf("Secrets Manager was asked %s", body)
		}
		value := "a-secret"
		switch {
		case strings.HasSuffix(asked.SecretId, "RedisUrlSecret"):
			value = "redis://127.0.0.1:1"
		case strings.HasSuffix(asked.SecretId, "secret:rds"):
			value = `{"username":"hubsync_admin","password":"made-up"}`
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": value, "Name": asked.SecretId})
	}))
	t.Cleanup(server.Close)
	return server.URL
}
