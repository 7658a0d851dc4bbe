package rdsca

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"regexp"
	"testing"
	"time"
)

func TestRootsAreRootsOfManyRegions(t *testing.T) {
	t.Parallel()
	path, err := File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^Amazon RDS ([a-z]+-[a-z]+-\d) Root CA (RSA2048|RSA4096|ECC384) G1$`)
	regions, count := map[string]bool{}, 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		match := name.FindStringSubmatch(c.Subject.CommonName)
		if match == nil || !c.IsCA || c.CheckSignatureFrom(c) != nil || c.NotAfter.Before(time.Now().AddDate(5, 0, 0)) {
			t.Errorf("%q is no long-lived root of RDS", c.Subject.CommonName)
			continue
		}
		regions[match[1]] = true
		count++
	}
	if len(regions) < 25 || count != 3*len(regions) {
		t.Errorf("%d certificates of %d regions; want three a region", count, len(regions))
	}
}
