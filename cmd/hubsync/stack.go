package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	json "github.com/go-json-experiment/json"

	"hubsync/shared/ops"
)

// adminOf is the name of a stack's admin function: template.yaml names it so.
func adminOf(stack string) string { return stack + "-admin" }

// invoke asks the admin function of a stack (lambda:InvokeFunction), with the AWS
// credentials and the region of the environment.
func invoke(ctx context.Context, stack string, r ops.Request) (ops.Response, error) {
	var response ops.Response
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return response, fmt.Errorf("load AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return response, errors.New("no AWS region: set AWS_REGION, or a profile that has one (AWS_PROFILE)")
	}
	payload, err := json.Marshal(r)
	if err != nil {
		return response, fmt.Errorf("%s: write the request: %w", r.Verb, err)
	}
	out, err := lambda.NewFromConfig(cfg).Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(adminOf(stack)), Payload: payload})
	if err != nil {
		return response, fmt.Errorf("invoke %s: %w; check the stack's name, the region and the right to lambda:InvokeFunction", adminOf(stack), err)
	}
	if out.FunctionError != nil {
		return response, fmt.Errorf("%s failed (%s); its log says why", adminOf(stack), *out.FunctionError)
	}
	if err := json.Unmarshal(out.Payload, &response); err != nil {
		return response, fmt.Errorf("%s: the answer cannot be read: is the stack of another version? %w", adminOf(stack), err)
	}
	return response, nil
}
