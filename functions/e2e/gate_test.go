package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// gate asks for a password before it lets a client through to a database, as RDS Proxy
// does: over TLS where it has a certificate, in clear text within it.
type gate struct {
	addr, target string
	tls          *tls.Config // nil: without

	mu     sync.Mutex
	admits func(user, password string) bool
	asked  []credentials
}

type credentials struct{ user, password string }

func openGate(t *testing.T, target string, cert *tls.Config, admits func(user, password string) bool) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), target: target, tls: cert, admits: admits}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(client)
		}
	}()
	return g
}

func (g *gate) serve(client net.Conn) {
	defer client.Close()
	backend := pgproto3.NewBackend(client, client)
	first, err := backend.ReceiveStartupMessage()
	if _, ok := first.(*pgproto3.SSLRequest); ok && err == nil {
		if g.tls == nil {
			return
		}
		if _, err = client.Write([]byte("S")); err != nil {
			return
		}
		client = tls.Server(client, g.tls)
		backend = pgproto3.NewBackend(client, client)
		first, err = backend.ReceiveStartupMessage()
	}
	startup, ok := first.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return // a cancel request, or a client that does not trust us
	}
	backend.Send(&pgproto3.AuthenticationCleartextPassword{})
	if backend.Flush() != nil || backend.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	message, err := backend.Receive()
	password, ok := message.(*pgproto3.PasswordMessage)
	if err != nil || !ok {
		return
	}
	user := startup.Parameters["user"]
	if !g.admit(user, password.Password) {
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"})
		_ = backend.Flush()
		return
	}
	g.join(client, startup)
}

func (g *gate) admit(user, password string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, credentials{user, password})
	return g.admits(user, password)
}

// setAdmits changes who is let in.
func (g *gate) setAdmits(admits func(user, password string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admits = admits
}

// seen returns the credentials that were shown so far.
func (g *gate) seen() []credentials {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]credentials(nil), g.asked...)
}

// join starts a session as postgres and carries both directions.
func (g *gate) join(client net.Conn, startup *pgproto3.StartupMessage) {
	server, err := net.Dial("tcp", g.target)
	if err != nil {
		return
	}
	defer server.Close()
	startup.Parameters["user"] = "postgres"
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(startup)
	if frontend.Flush() != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// authority signs certificates that nobody else trusts.
type authority struct {
	file string // its certificate, PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var der []byte
	a.key, der = sign(t, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue returns a server's configuration with a certificate for a host.
func (a *authority) issue(t *testing.T, host string) *tls.Config {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	key, der := sign(t, template, a)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func sign(t *testing.T, template *x509.Certificate, by *authority) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}
