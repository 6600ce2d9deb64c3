package proc

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric returns the value of a series that a gateway shows under /metrics, or 0
// if there is none: a counter that nothing was counted in yet. The series is as
// the page has it, with its labels in order.
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
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil {
				t.Fatalf("metrics: %s: %v", series, err)
			}
			return value
		}
	}
	return 0
}
