package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"leased/contract"
	"leased/gateway/api"
)

const (
	maxBody     = 64 << 10 // bytes
	maxBulkBody = 1 << 20  // bytes
	// bodyTimeout bounds the reading of a body, whatever the call's own deadline:
	// a client that sends a byte a minute must not hold a connection.
	bodyTimeout = 30 * time.Second
	// fieldBody is what a problem names when it is about the whole body.
	fieldBody = "body"
	// maxField keeps a name that the caller made up from filling the reply.
	maxField = 256 // bytes
)

func newBody() any {
	b := make([]byte, 0, 4<<10)
	return &b
}

// decodeBody reads the request's body into the value that in points to. It is
// strict: what a lenient decoder would ignore (a misspelt field, the second of
// two, what follows the value) is what its sender meant to say.
func (x *exchange) decodeBody(in any, limit int) error {
	if err := checkMediaType(x.r.Header); err != nil {
		return err
	}
	buf, ok := x.h.buffers.Get().(*[]byte)
	if !ok {
		return errors.New("gateway: the pool of bodies holds something else")
	}
	defer func() {
		if cap(*buf) <= maxBody { // a few large bodies must not stay for ever
			x.h.buffers.Put(buf)
		}
	}()
	body, err := x.readBody((*buf)[:0], limit)
	*buf = body
	if err != nil {
		return err
	}
	switch string(bytes.TrimSpace(body)) {
	case "":
		return contract.Invalid(fieldBody, "is empty; send a JSON object")
	case "null":
		return contract.Invalid(fieldBody, "must be an object, not null")
	}
	if err := json.Unmarshal(body, in, x.h.decode); err != nil {
		return invalidBody(err)
	}
	return nil
}

func checkMediaType(h http.Header) error {
	if slices.ContainsFunc(h["Content-Encoding"], func(coding string) bool { return coding != "" }) {
		return refuse(api.CodeUnsupportedMediaType, "send the body without a Content-Encoding")
	}
	if kinds := h["Content-Type"]; slices.ContainsFunc(kinds, func(kind string) bool { return kind != kinds[0] }) {
		return refuse(api.CodeUnsupportedMediaType, "send one Content-Type")
	}
	given := h.Get("Content-Type")
	if given == api.MediaType {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	charset, hasCharset := params["charset"]
	if err != nil || kind != api.MediaType || (hasCharset && !strings.EqualFold(charset, "utf-8")) {
		return refuse(api.CodeUnsupportedMediaType, "send the body as "+api.MediaType+", in UTF-8")
	}
	return nil
}

// limitBody bounds the time that the body may take, on every route: of what a route
// does not read, net/http reads the rest before it replies. It is a deadline on the
// connection, rather than http.Server.ReadTimeout, which would run on after the body
// and end a waiting request.
func (x *exchange) limitBody() {
	if x.r.Body != http.NoBody {
		x.setBodyLimit(time.Now().Add(x.h.service.bodyTimeout))
	}
}

// limitRest bounds what net/http reads of the body before it sends a reply, to less
// than the reply may take.
func (x *exchange) limitRest() {
	if x.bodyLimit.IsZero() {
		return
	}
	if rest := time.Now().Add(x.h.service.bodyTimeout / 4); rest.Before(x.bodyLimit) {
		x.setBodyLimit(rest)
	}
}

// setBodyLimit sets when the body must have come, zero when nothing of it is left.
func (x *exchange) setBodyLimit(at time.Time) {
	x.bodyLimit = at
	// An error says that the writer, as a test's, has no connection below it.
	_ = http.NewResponseController(x.c.Writer).SetReadDeadline(at)
}

// readBody appends the body to b. It reads to the very end: net/http notices
// that a client went away only when nothing of the body is left to be read.
func (x *exchange) readBody(b []byte, limit int) ([]byte, error) {
	tooLarge := refuse(api.CodeTooLarge, "the body has more than "+strconv.Itoa(limit)+" bytes")
	if x.r.ContentLength > int64(limit) {
		return b, tooLarge
	}
	if x.r.Header.Get("Expect") != "" {
		// Reading makes net/http write "100 Continue", for which the deadline of
		// the connection's last reply may be over.
		_ = http.NewResponseController(x.c.Writer).SetWriteDeadline(time.Now().Add(x.h.service.bodyTimeout))
		x.connection().limited = time.Time{} // that one is not for the reply
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := x.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return b, tooLarge
		case err == io.EOF:
			x.setBodyLimit(time.Time{})
			return b, nil
		case err != nil:
			return b, &refusal{code: api.CodeInvalid, field: fieldBody, detail: "the body could not be read to its end", cause: err}
		}
	}
}

// invalidBody says what is wrong with a body in the words of the API: where, and
// what was expected there.
func invalidBody(err error) error {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		field := fieldOf(e.JSONPointer)
		switch {
		case errors.Is(e.Err, json.ErrUnknownName):
			return contract.Invalid(field, "is not a field of this request")
		case errors.Is(e.Err, strconv.ErrRange):
			return contract.Invalid(field, "is out of range")
		case e.JSONKind == '0':
			return contract.Invalid(field, "must be %s", expected(e.GoType))
		}
		return contract.Invalid(field, "must be %s, not %s", expected(e.GoType), kindName(e.JSONKind))
	}
	e, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return &refusal{code: api.CodeInvalid, field: fieldBody, detail: "is not valid JSON", cause: err}
	}
	field := fieldOf(e.JSONPointer)
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return contract.Invalid(field, "is given twice")
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return contract.Invalid(field, "is where the JSON ends too early, after byte %d", e.ByteOffset)
	}
	return contract.Invalid(field, "is not valid JSON in UTF-8, at byte %d", e.ByteOffset)
}

// fieldOf returns a JSON pointer as the API writes paths: "key.target.id",
// "leases[3].token".
func fieldOf(p jsontext.Pointer) string {
	var path strings.Builder
	inList := false
	for token := range p.Tokens() {
		switch {
		case inList && token != "" && strings.Trim(token, "0123456789") == "":
			fmt.Fprintf(&path, "[%s]", token)
		case path.Len() > 0:
			path.WriteString("." + token)
		default:
			path.WriteString(token)
		}
		inList = path.String() == "leases" // the only field that is a list
	}
	if path.Len() == 0 {
		return fieldBody
	}
	return cutText(path.String(), maxField)
}

// cutText returns s fit for a reply: cut to at most limit bytes between two
// characters, and valid UTF-8, without which the reply could not be encoded.
func cutText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int64:
		return "a whole number"
	case reflect.Uint64:
		return "a whole number, not negative"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "a list"
	default:
		return "an object"
	}
}
