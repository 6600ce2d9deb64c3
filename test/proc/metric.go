package proc

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric returns the value of a series that a server shows under /metrics: a
// name and labels as the page has them, or a name for the sum of all its series. It
// is 0 if there is none, as of a counter in which nothing was counted yet.
func Metric(t TB, server, series string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/metrics", http.NoBody)
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		t.Fatalf("metrics: %v", err)
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, series)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			t.Fatalf("metrics: %s: %v", series, err)
		}
		sum += value
	}
	return sum
}
