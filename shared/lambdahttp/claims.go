package lambdahttp

import (
	"context"

	"github.com/aws/aws-lambda-go/events"
)

type claimsKey struct{}

// withClaims keeps what API Gateway verified of the caller's token; a function URL and a
// caller that signed with IAM have none.
func withClaims(ctx context.Context, event events.APIGatewayV2HTTPRequest) context.Context {
	authorizer := event.RequestContext.Authorizer
	if authorizer == nil || authorizer.JWT == nil {
		return ctx
	}
	return context.WithValue(ctx, claimsKey{}, authorizer.JWT.Claims)
}

// Claim returns a claim of the caller's token as API Gateway hands it over: text, a list
// as "[a b]". "" where there is no such claim, or no token.
func Claim(ctx context.Context, name string) string {
	claims, _ := ctx.Value(claimsKey{}).(map[string]string)
	return claims[name]
}
