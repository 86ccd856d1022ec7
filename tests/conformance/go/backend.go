// The backend of h2spec: answers HTTP/1.1 and h2c with what Go's net/http makes of them, as queue-proxy does.
package main

import (
	"flag"
	"io"
	"log"
	"net/http"
	"strings"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	flag.Parse()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: *listen, Handler: http.HandlerFunc(answer), Protocols: &protocols}
	log.Fatal(server.ListenAndServe())
}

// Reads the request to its end and answers with enough for a flow control window to run out.
func answer(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	io.WriteString(w, strings.Repeat("tidegate", 128))
}
