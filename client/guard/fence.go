package guard

import (
	"fmt"
	"net/http"
	"strconv"
	"unicode"
	"unicode/utf8"

	"leased/contract"
	"leased/gateway/api"
)

// maxKey is the longest key in bytes. MySQL can index that much in every row
// format.
const maxKey = 255

// Fence is what a holder shows to the protected side.
type Fence struct {
	// Key names what is fenced: the same name from every holder, and for nothing
	// else. It is 1 to 255 bytes of UTF-8 without control characters. Tokens of
	// two keys cannot be compared, so it stands for one key of one namespace.
	Key string
	// Token is the lease's fencing token, from 1 to 2⁵³ − 1.
	Token uint64
}

// Of returns the fence of a lease: its key is "namespace/key_id".
func Of(l *api.Lease) Fence { return Fence{Key: l.Namespace + "/" + l.KeyID, Token: l.Token} }

// The names of the request headers that carry a fence.
const (
	HeaderKey   = "Fence-Key"
	HeaderToken = "Fence-Token"
)

// SetHeader puts the fence into the headers of a request.
func (f Fence) SetHeader(h http.Header) {
	h.Set(HeaderKey, f.Key)
	h.Set(HeaderToken, strconv.FormatUint(f.Token, 10))
}

// check refuses what no lease service has granted. A token that is too high would
// lock every holder out for ever, and 0 is what a forgotten token looks like.
func (f Fence) check() error {
	switch {
	case f.Key == "" || len(f.Key) > maxKey:
		return fmt.Errorf("%w: the key has %d bytes; it must have 1 to %d", ErrInvalid, len(f.Key), maxKey)
	case !utf8.ValidString(f.Key):
		return fmt.Errorf("%w: the key %q is not UTF-8", ErrInvalid, f.Key)
	case f.Token == 0 || f.Token > uint64(contract.MaxToken):
		return fmt.Errorf("%w: the token %d is not from 1 to %d", ErrInvalid, f.Token, uint64(contract.MaxToken))
	}
	for _, r := range f.Key {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: the key %q has a control character", ErrInvalid, f.Key)
		}
	}
	return nil
}

// guardError makes a constant a target of errors.Is.
type guardError string

// Error returns the text.
func (e guardError) Error() string { return string(e) }

const (
	// ErrStale matches every *StaleError.
	ErrStale = guardError("the fencing token is stale")
	// ErrInvalid is wrapped by the refusal of a fence that no lease can have.
	// Nothing was compared.
	ErrInvalid = guardError("the fence is invalid")
)

// StaleError says that a higher token was seen: the lease with this one has
// ended, and whoever shows it has to stop.
type StaleError struct {
	Key     string
	Token   uint64
	Highest uint64 // that was seen for the key
}

// Error names key and tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("fence %s: token %d is stale, %d was seen", e.Key, e.Token, e.Highest)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Counter counts rejections of stale tokens. A prometheus.Counter is one. It must
// be safe for concurrent use.
type Counter interface{ Inc() }

// refuse counts and returns a stale fence.
func refuse(c Counter, f Fence, highest uint64) error {
	if c != nil {
		c.Inc()
	}
	return &StaleError{Key: f.Key, Token: f.Token, Highest: highest}
}
