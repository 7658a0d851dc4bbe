//go:build !linux

package lambdatest

import "syscall"

// processAttributes: a group of its own, so that Ctrl-C reaches this process only.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
