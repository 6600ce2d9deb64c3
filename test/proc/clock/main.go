package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	<-time.After(400 * time.Millisecond)
	_, err := fmt.Fprintf(os.Stdout, "%s\n%s\n%s\n", start.Format(time.RFC3339Nano), time.Now().Format(time.RFC3339Nano), time.Since(start))
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); {
		_, err = fmt.Fprintln(os.Stdout, time.Now().Format(time.RFC3339Nano))
	}
	if err != nil {
		os.Exit(1)
	}
}
