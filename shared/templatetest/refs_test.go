package templatetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pseudo are CloudFormation's own parameters.
var pseudo = []string{"AWS::AccountId", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackName", "AWS::StackId", "AWS::URLSuffix"}

// attributes are what GetAtt may ask of a type, of those that the template uses.
var attributes = map[string][]string{
	"AWS::ApiGatewayV2::Api": {"ApiEndpoint"}, "AWS::EC2::EIP": {"AllocationId"}, "AWS::EC2::NatGateway": {"NatGatewayId"},
	"AWS::IAM::Role": {"Arn"}, "AWS::Lambda::Url": {"FunctionUrl"}, "AWS::Logs::LogGroup": {"Arn"}, "AWS::RDS::DBProxy": {"DBProxyArn", "Endpoint"},
	"AWS::RDS::DBInstance": {"DbiResourceId", "Endpoint.Address", "MasterUserSecret.SecretArn"}, "AWS::SQS::Queue": {"Arn", "QueueName"},
}

// names is what a template's references may name, and which of it was named.
type names struct {
	t                      *testing.T
	resources              object
	parameters, conditions map[string]bool // name → used
}

func TestEveryReferenceResolvesAndEveryNameIsUsed(t *testing.T) {
	t.Parallel()
	template := loadTemplate(t)
	n := names{t: t, resources: expand(t, template).resources, parameters: map[string]bool{}, conditions: map[string]bool{}}
	for name := range template["Parameters"].(object) {
		n.parameters[name] = false
	}
	for name := range template["Conditions"].(object) {
		n.conditions[name] = false
	}
	// Globals are judged where they end up: in the functions.
	for _, part := range []string{"Conditions", "Outputs", "Rules"} {
		walk(part, renamed(template[part]), n.judge)
	}
	walk("Resources", n.resources, n.judge)
	walk("Resources", renamed(template["Resources"]), n.judge) // what the expansion drops: DeploymentPreference
	for name, used := range n.parameters {
		if !used {
			t.Errorf("parameter %s is never used", name)
		}
	}
	for name, used := range n.conditions {
		if !used {
			t.Errorf("condition %s is never used", name)
		}
	}
	grouped := groupedParameters(template)
	for name := range n.parameters {
		if !slices.Contains(grouped, name) {
			t.Errorf("parameter %s is in no group of the interface", name)
		}
	}
}

func groupedParameters(template object) (grouped []string) {
	for _, group := range list(at(template, "Metadata", "AWS::CloudFormation::Interface", "ParameterGroups")) {
		for _, name := range list(at(group, "Parameters")) {
			grouped = append(grouped, name.(string))
		}
	}
	return grouped
}

func (n names) judge(path string, v any) {
	m, ok := v.(object)
	if !ok {
		return
	}
	if name, ok := m["Condition"].(string); ok {
		n.condition(path, name)
	}
	if parts, ok := m["Fn::If"].([]any); ok {
		n.condition(path, fmt.Sprint(parts[0]))
		if len(parts) != 3 {
			n.t.Errorf("%s: an If of %d parts", path, len(parts))
		}
	}
	if name, ok := m["Ref"].(string); ok {
		n.ref(path, name)
	}
	if parts, ok := m["Fn::GetAtt"].([]any); ok {
		n.getAtt(path, parts[0].(string), parts[1].(string))
	}
	if sub, ok := m["Fn::Sub"]; ok {
		n.sub(path, sub)
	}
	for _, id := range list(m["DependsOn"]) {
		if n.resources[id.(string)] == nil {
			n.t.Errorf("%s depends on %s, which is nothing", path, id)
		}
	}
}

func (n names) condition(path, name string) {
	if _, ok := n.conditions[name]; !ok {
		n.t.Errorf("%s: condition %s is not defined", path, name)
	}
	n.conditions[name] = true
}

func (n names) ref(path, name string) {
	if _, ok := n.parameters[name]; ok {
		n.parameters[name] = true
	} else if n.resources[name] == nil && !slices.Contains(pseudo, name) {
		n.t.Errorf("%s: %s is nothing", path, name)
	}
}

func (n names) getAtt(path, id, attribute string) {
	kind := fmt.Sprint(at(n.resources, id, "Type"))
	if !slices.Contains(attributes[kind], attribute) {
		n.t.Errorf("%s: %s (%s) has no attribute %s that this test knows", path, id, kind, attribute)
	}
}

var placeholder = regexp.MustCompile(`\$\{([^!}][^}]*)\}`)

func (n names) sub(path string, v any) {
	text, own := v, object{}
	if parts, ok := v.([]any); ok {
		text, own = parts[0], parts[1].(object)
	}
	for _, match := range placeholder.FindAllStringSubmatch(text.(string), -1) {
		name := match[1]
		if own[name] != nil {
			continue
		}
		if id, attribute, isAttribute := strings.Cut(name, "."); isAttribute {
			n.getAtt(path, id, attribute)
		} else {
			n.ref(path, name)
		}
	}
}
