// otlp_receiver takes traces as OpenTelemetry's collector does: its own OTLP receiver, over HTTP.
//
// usage: otlp_receiver HOST:PORT MOOD [CERT KEY]
// It prints "ready", then each request that it takes, as a line of JSON with its headers beside it.  While the file
// MOOD says "busy" or "never" it takes none, and answers as the collector does (503, 500).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

var out sync.Mutex

func mood() error {
	text, _ := os.ReadFile(os.Args[2])
	switch strings.TrimSpace(string(text)) {
	case "busy":
		return errors.New("busy")
	case "never":
		return consumererror.NewPermanent(errors.New("never"))
	}
	return nil
}

func take(ctx context.Context, traces ptrace.Traces) error {
	if err := mood(); err != nil {
		return err
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return err
	}
	headers := map[string][]string{}
	metadata := client.FromContext(ctx).Metadata
	for name := range metadata.Keys() {
		headers[strings.ToLower(name)] = metadata.Get(name)
	}
	line, err := json.Marshal(map[string]any{"headers": headers, "traces": json.RawMessage(text)})
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(line))
	return err
}

func start() error {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	server := &config.Protocols.HTTP.GetOrInsertDefault().ServerConfig
	server.NetAddr = confignet.AddrConfig{Endpoint: os.Args[1], Transport: confignet.TransportTypeTCP}
	server.IncludeMetadata = true
	if len(os.Args) > 4 {
		files := configtls.Config{CertFile: os.Args[3], KeyFile: os.Args[4]}
		server.TLS = configoptional.Some(configtls.ServerConfig{Config: files})
	}
	next, err := consumer.NewTraces(take)
	if err != nil {
		return err
	}
	ctx := context.Background()
	receiver, err := factory.CreateTraces(ctx, receivertest.NewNopSettings(factory.Type()), config, next)
	if err != nil {
		return err
	}
	return receiver.Start(ctx, componenttest.NewNopHost())
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: otlp_receiver HOST:PORT MOOD [CERT KEY]")
	}
	if err := start(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
}
