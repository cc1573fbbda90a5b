// Command streamdb is the streaming database: server, demo, SQL shell, test runner, benchmarks and checkpoint tools in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

type cli struct {
	Serve      serveCmd      `cmd:"" help:"Run the server."`
	Demo       demoCmd       `cmd:"" help:"Generate auction events, create views over them, and show them changing."`
	SQL        sqlCmd        `cmd:"" name:"sql" help:"Run SQL in this process, without a server."`
	Slt        sltCmd        `cmd:"" help:"Run sqllogictest files."`
	Bench      benchCmd      `cmd:"" help:"Measure the engine."`
	Checkpoint checkpointCmd `cmd:"" help:"Look at checkpoints in a folder or bucket, without a server."`
	Version    versionCmd    `cmd:"" help:"Print the version."`

	LogLevel  string `help:"Least severity logged: debug, info, warn, error." default:"info" env:"STREAMDB_LOG_LEVEL" enum:"debug,info,warn,error"`
	LogFormat string `help:"json or console." default:"console" env:"STREAMDB_LOG_FORMAT" enum:"json,console"`
}

// app is what commands are given.
type app struct {
	ctx    context.Context //nolint:containedctx // ends with the process
	log    zerolog.Logger
	stdout io.Writer
	cores  int
}

// threadsPerCore is how many threads of the process run Go code at the same time, by core. While views keep all of them busy a client's message is
// seen 10 ms late only; with some to spare the kernel runs its answer at once and shares the cores fairly.
const threadsPerCore = 4

// spareThreads makes room for clients beside busy views, unless GOMAXPROCS says how much there is, and returns the number of cores.
func spareThreads() (cores int) {
	cores = runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threadsPerCore * cores)
	}
	return cores
}

// processCores is spareThreads once in a process, in which several commands may run.
var processCores = sync.OnceValue(spareThreads)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	var c cli
	parser, err := kong.New(&c, kong.Name("streamdb"), kong.Description("A SQL-driven streaming database that speaks the PostgreSQL protocol."),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(os.Stderr, "streamdb:", err)
		return exitFailure
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "streamdb:", err)
		fmt.Fprintln(os.Stderr, "Run streamdb --help for the commands and flags.")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var out io.Writer = os.Stderr
	if c.LogFormat == "console" {
		zerolog.TimeFieldFormat = time.RFC3339Nano // the default drops the milliseconds
		info, err := os.Stderr.Stat()
		terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
		out = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "2006-01-02 15:04:05.000", NoColor: !terminal || os.Getenv("NO_COLOR") != ""}
	}
	level, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		return exitUsage
	}
	a := &app{ctx: ctx, log: zerolog.New(out).Level(level).With().Timestamp().Logger(), stdout: os.Stdout, cores: processCores()}
	err = kctx.Run(a)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "streamdb:", describe(err))
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "streamdb:", describe(err))
	return exitFailure
}

// usageError is a mistake in flags or arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.stdout, "streamdb", streamdb.Version)
	return err
}

// byteSize is a flag such as 512MiB or 2GiB.
type byteSize int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *byteSize) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"B", 1}, {"", 1}} {
		num, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || f <= 0 {
			break
		}
		*b = byteSize(f * float64(u.factor))
		return nil
	}
	return fmt.Errorf("%q is not a size such as 512MiB or 2GiB", s)
}
