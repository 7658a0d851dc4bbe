package templatetest

import (
	"maps"
	"strings"
	"testing"
)

// expanded is the template after SAM's transform: plain resources only.
type expanded struct {
	resources object
	functions []string // logical ids, in no order
}

// expand does what the transform does with the functions of this template: Globals, alias,
// version, function URL with its two permissions, schedules, and what becomes of a failed
// asynchronous invocation. Everything else is copied. TestRealTransformAgrees compares it
// with the real one.
func expand(t *testing.T, template object) expanded {
	t.Helper()
	globals, _ := at(template, "Globals", "Function").(object)
	e := expanded{resources: object{}}
	for id, r := range template["Resources"].(object) {
		if at(r, "Type") != "AWS::Serverless::Function" {
			e.resources[id] = renamed(r)
			continue
		}
		e.functions = append(e.functions, id)
		e.expandFunction(t, id, r.(object), merged(globals, at(r, "Properties").(object)))
	}
	return e
}

// movedToFunction are the properties that stay with AWS::Lambda::Function.
var movedToFunction = []string{"Runtime", "Architectures", "Handler", "MemorySize", "VpcConfig", "Environment", "Description", "FunctionName",
	"Role", "Timeout", "ReservedConcurrentExecutions", "LoggingConfig"}

func (e *expanded) expandFunction(t *testing.T, id string, source, p object) {
	t.Helper()
	alias := object{"Ref": id + "Aliaslive"}
	if p["AutoPublishAlias"] != "live" {
		t.Fatalf("%s has no alias live", id)
	}
	properties := object{}
	for _, name := range movedToFunction {
		if v, ok := p[name]; ok {
			properties[name] = renamed(v)
		}
	}
	e.resources[id] = object{"Type": "AWS::Lambda::Function", "Properties": properties, "DependsOn": source["DependsOn"]}
	e.resources[id+"Aliaslive"] = object{"Type": "AWS::Lambda::Alias", "Properties": object{"FunctionName": object{"Ref": id}, "Name": "live"}}
	e.resources[id+"EventInvokeConfig"] = object{"Type": "AWS::Lambda::EventInvokeConfig", "Properties": object{
		"FunctionName": object{"Ref": id}, "Qualifier": "live",
		"MaximumEventAgeInSeconds": at(p, "EventInvokeConfig", "MaximumEventAgeInSeconds"),
		"MaximumRetryAttempts":     at(p, "EventInvokeConfig", "MaximumRetryAttempts"),
		"DestinationConfig": object{"OnFailure": object{
			"Destination": at(p, "EventInvokeConfig", "DestinationConfig", "OnFailure", "Destination")}},
	}}
	if p["DeploymentPreference"] != nil {
		e.resources[id+"DeploymentGroup"] = object{"Type": "AWS::CodeDeploy::DeploymentGroup"}
		e.resources["ServerlessDeploymentApplication"] = object{"Type": "AWS::CodeDeploy::Application"}
	}
	if p["FunctionUrlConfig"] != nil {
		e.resources[id+"Url"] = object{"Type": "AWS::Lambda::Url", "Properties": object{
			"AuthType": at(p, "FunctionUrlConfig", "AuthType"), "TargetFunctionArn": alias}}
		e.resources[id+"UrlPublicPermissions"] = object{"Type": "AWS::Lambda::Permission", "Properties": object{
			"Action": "lambda:InvokeFunctionUrl", "FunctionName": alias, "FunctionUrlAuthType": at(p, "FunctionUrlConfig", "AuthType"), "Principal": "*"}}
		e.resources[id+"URLInvokeAllowPublicAccess"] = object{"Type": "AWS::Lambda::Permission", "Properties": object{
			"Action": "lambda:InvokeFunction", "FunctionName": alias, "InvokedViaFunctionUrl": true, "Principal": "*"}}
	}
	events, _ := p["Events"].(object)
	for name, event := range events {
		if at(event, "Type") != "ScheduleV2" {
			t.Fatalf("%s has an event of type %v", id, at(event, "Type"))
		}
		e.resources[id+name] = schedule(at(event, "Properties").(object), alias)
	}
}

func schedule(p, alias object) object {
	return object{"Type": "AWS::Scheduler::Schedule", "Properties": object{
		"Name": p["Name"], "ScheduleExpression": p["ScheduleExpression"], "FlexibleTimeWindow": object{"Mode": "OFF"},
		"Target": object{"Arn": alias, "RetryPolicy": p["RetryPolicy"], "DeadLetterConfig": p["DeadLetterConfig"], "RoleArn": p["RoleArn"]},
	}}
}

// merged lays a function's properties over the ones of Globals: mappings by key, lists one
// after the other, anything else replaced.
func merged(global, own object) object {
	out := maps.Clone(global)
	for key, v := range own {
		g := out[key]
		gm, gok := g.(object)
		vm, vok := v.(object)
		gl, glok := g.([]any)
		vl, vlok := v.([]any)
		switch {
		case gok && vok && !isIntrinsic(gm) && !isIntrinsic(vm):
			out[key] = merged(gm, vm)
		case glok && vlok:
			out[key] = append(append([]any{}, gl...), vl...)
		default:
			out[key] = v
		}
	}
	return out
}

// isIntrinsic reports whether a mapping is a function call such as {"Ref": …}.
func isIntrinsic(m object) bool {
	for key := range m {
		return len(m) == 1 && (key == "Ref" || key == "Condition" || strings.HasPrefix(key, "Fn::"))
	}
	return false
}

// renamed puts the resources that SAM makes in the place of its short forms.
func renamed(v any) any {
	switch v := v.(type) {
	case object:
		if ref, ok := v["Ref"].(string); ok {
			return object{"Ref": strings.Replace(ref, "Function.Alias", "FunctionAliaslive", 1)}
		}
		out := object{}
		for key, below := range v {
			out[key] = renamed(below)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, below := range v {
			out[i] = renamed(below)
		}
		return out
	}
	return v
}

// ofType returns the resources of a type by logical id.
func (e expanded) ofType(kind string) map[string]object {
	found := map[string]object{}
	for id, r := range e.resources {
		if at(r, "Type") == kind {
			found[id] = r.(object)
		}
	}
	return found
}

// properties returns the properties of a resource.
func (e expanded) properties(id string) object {
	p, _ := at(e.resources, id, "Properties").(object)
	return p
}
