package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestPaced_SetReadDeadline: a read of a body whose client takes its time ends when
// the store says so, whether it has begun or not.
func TestPaced_SetReadDeadline(t *testing.T) {
	for _, inTheMiddle := range []bool{true, false} {
		read := make(chan error, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p := &paced{r: r.Body, control: http.NewResponseController(w), patience: time.Hour}
			one := make([]byte, 1)
			if _, err := p.Read(one); err != nil {
				t.Error(err)
			}
			end := func() {
				if err := p.SetReadDeadline(time.Unix(1, 0)); err != nil {
					t.Error(err)
				}
			}
			if inTheMiddle {
				go end()
			} else {
				end()
			}
			_, err := p.Read(one)
			read <- err
		}))
		body, rest := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if r, err := http.Post(server.URL, "text/plain", body); err == nil {
				_ = r.Body.Close()
			}
		}()
		if _, err := rest.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got error %v, want %v", err, os.ErrDeadlineExceeded)
		}
		_ = rest.Close()
		<-done
		server.Close()
	}
}
