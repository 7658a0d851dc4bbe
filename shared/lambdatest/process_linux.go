package lambdatest

import "syscall"

// processAttributes: a group of its own, so that Ctrl-C reaches this process only; and
// death with this one, because a frozen process would stay for ever.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
