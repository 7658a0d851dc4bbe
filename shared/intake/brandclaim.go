package intake

import (
	"slices"
	"strings"
)

// everyBrand in a claim is the right to speak for all of them.
const everyBrand = "*"

// mayActFor reports whether a token's brand claim covers a route. claim is one brand, or
// several between spaces or commas, also in the brackets that API Gateway puts around a
// list. What names no brand but concerns all needs everyBrand; what is no part of the API
// proper (health, links with a signature of their own) needs no claim.
func mayActFor(claim, template string, params []string) bool {
	rest, isAPI := strings.CutPrefix(template, "/v1/")
	if !isAPI {
		return true
	}
	named := strings.FieldsFunc(strings.TrimSuffix(strings.TrimPrefix(claim, "["), "]"), func(r rune) bool { return r == ' ' || r == ',' })
	if slices.Contains(named, everyBrand) {
		return true
	}
	return strings.HasPrefix(rest, "brands/{brandId}") && slices.Contains(named, params[0])
}
