// Package templatetest reads and judges template.yaml without an account: every reference resolves,
// and the rules of the deployment (ages, retries, dead letters, retention, permissions,
// encryption, an alarm with its page for everything) hold on what AWS makes of it. The file
// expand_test.go does SAM's part of that in Go; where the real transform and cfn-lint are on
// the machine, they are asked too, and the two expansions must agree.
package templatetest
