package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	<-time.After(400 * time.Millisecond)
	_, err := fmt.Fprintf(os.Stdout, "%s\n%s\n%s\n", start.Format(time.RFC3339Nano), time.Now().Format(time.RFC3339Nano), time.Since(start))
	if err != nil {
		os.Exit(1)
	}
}
