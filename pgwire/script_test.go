package pgwire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgproto3/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// scriptTimeout is how long a script waits for a message.
const scriptTimeout = 10 * time.Second

// scriptClient speaks the protocol byte by byte.
type scriptClient struct {
	nc net.Conn
	br *bufio.Reader

	pid    uint32
	secret []byte
}

func newScriptClient(t testing.TB, nc net.Conn) *scriptClient {
	require.NoError(t, nc.SetDeadline(time.Now().Add(scriptTimeout)))
	return &scriptClient{nc: nc, br: bufio.NewReader(nc)}
}

// startupBytes is a startup message with its parameters in the order given.
func startupBytes(version uint32, pairs ...string) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), version)
	for _, p := range pairs {
		b = append(append(b, p...), 0)
	}
	b = append(b, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// next reads a message and describes it on a line.
func (c *scriptClient) next() (string, byte, error) {
	head := make([]byte, messageHeaderBytes)
	if _, err := io.ReadFull(c.br, head); err != nil {
		return "", 0, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	if _, err := io.ReadFull(c.br, body); err != nil {
		return "", 0, err
	}
	switch head[0] {
	case 'K':
		c.pid, c.secret = binary.BigEndian.Uint32(body), body[4:]
		if len(c.secret) != 4 {
			return fmt.Sprintf("BackendKeyData of %d bytes", len(c.secret)), 'K', nil
		}
		return "BackendKeyData", 'K', nil
	case 'v':
		return fmt.Sprintf("NegotiateProtocolVersion %d.%d %q", binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:]), body[8:]), 'v', nil
	}
	text, err := describeMessage(head[0], body)
	return text, head[0], err
}

func describeMessage(typ byte, body []byte) (string, error) {
	switch typ {
	case '1', '2', '3', 'n', 'I', 's', 'c':
		names := map[byte]string{
			'1': "ParseComplete", '2': "BindComplete", '3': "CloseComplete", 'n': "NoData", 'I': "EmptyQueryResponse",
			's': "PortalSuspended", 'c': "CopyDone",
		}
		return names[typ], nil
	case 'Z':
		return "ReadyForQuery " + string(body), nil
	case 'C':
		return "CommandComplete " + string(body[:len(body)-1]), nil
	case 'S':
		var m pgproto3.ParameterStatus
		err := m.Decode(body)
		return "ParameterStatus " + m.Name + "=" + m.Value, err
	case 'R':
		return fmt.Sprintf("Authentication %d", binary.BigEndian.Uint32(body)), nil
	case 't':
		var m pgproto3.ParameterDescription
		err := m.Decode(body)
		return fmt.Sprint("ParameterDescription ", m.ParameterOIDs), err
	case 'T':
		var m pgproto3.RowDescription
		err := m.Decode(body)
		s := "RowDescription"
		for _, f := range m.Fields {
			s += fmt.Sprintf(" %s:oid=%d,size=%d,mod=%d,f%d", f.Name, f.DataTypeOID, f.DataTypeSize, f.TypeModifier, f.Format)
		}
		return s, err
	case 'D':
		var m pgproto3.DataRow
		err := m.Decode(body)
		s := "DataRow"
		for _, v := range m.Values {
			switch {
			case v == nil:
				s += " NULL"
			case pgerr.CheckText(v) == nil:
				s += " " + string(v)
			default:
				s += " x" + hex.EncodeToString(v)
			}
		}
		return s, err
	case 'E', 'N':
		var m pgproto3.ErrorResponse
		err := m.Decode(body)
		s := map[byte]string{'E': "ErrorResponse ", 'N': "NoticeResponse "}[typ] + m.Severity + " " + m.Code + " " + m.Message
		for _, f := range [][2]string{{"detail", m.Detail}, {"hint", m.Hint}} {
			if f[1] != "" {
				s += " " + f[0] + ":" + f[1]
			}
		}
		if m.Position != 0 {
			s += fmt.Sprint(" position:", m.Position)
		}
		return s, err
	}
	return fmt.Sprintf("%c %q", typ, body), nil
}

// frontendMessage encodes a line of a "send": the message's name, then its fields as JSON.
func frontendMessage(line string) ([]byte, error) {
	name, fields, _ := strings.Cut(line, " ")
	m, ok := map[string]pgproto3.FrontendMessage{
		"Query": &pgproto3.Query{}, "Parse": &pgproto3.Parse{}, "Bind": &pgproto3.Bind{}, "Execute": &pgproto3.Execute{},
		"Describe": &pgproto3.Describe{}, "Close": &pgproto3.Close{}, "Sync": &pgproto3.Sync{}, "Flush": &pgproto3.Flush{},
		"Terminate": &pgproto3.Terminate{}, "CopyData": &pgproto3.CopyData{}, "CopyDone": &pgproto3.CopyDone{},
		"CopyFail": &pgproto3.CopyFail{}, "Password": &pgproto3.PasswordMessage{},
	}[name]
	if !ok {
		return nil, fmt.Errorf("unknown message %q", name)
	}
	if fields != "" {
		if err := json.Unmarshal([]byte(fields), objectTypes(m)); err != nil {
			return nil, err
		}
	}
	return m.Encode(nil)
}

// objectTypes lets Describe and Close name their object type by letter.
func objectTypes(m pgproto3.FrontendMessage) any {
	switch m := m.(type) {
	case *pgproto3.Describe:
		return &letterJSON{&m.ObjectType, &m.Name}
	case *pgproto3.Close:
		return &letterJSON{&m.ObjectType, &m.Name}
	}
	return m
}

type letterJSON struct {
	letter *byte
	name   *string
}

func (l *letterJSON) UnmarshalJSON(b []byte) error {
	var v struct{ ObjectType, Name string }
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*l.letter, *l.name = v.ObjectType[0], v.Name
	return nil
}

// TestScripts runs the scripts in testdata. Commands:
//
//	connect [version=x.y]   new connection; lines of input: startup parameters "name=value", sent as given
//	send                    lines of input: messages, sent in one piece
//	raw                     lines of input: hex bytes, or text in double quotes
//	until X                 prints messages up to one of type X (a letter; default Z)
//	bytes n                 prints n bytes
//	eof                     prints messages until the server closes the connection
//	cancel [wrong|short]    sends a cancel request for this connection once its statement waits, on a connection of its own
//	committed               prints the number of inserts committed so far
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		h := newFakeHandler()
		srv := NewServer(Config{Handler: h, Logger: zerolog.Nop(), MaxConnections: 3})
		defer shutdown(t, srv)
		var clients []*scriptClient
		defer func() {
			for _, c := range clients {
				require.NoError(t, c.nc.Close())
			}
		}()
		dial := func() *scriptClient {
			nc, err := srv.Dial(t.Context(), "", "")
			require.NoError(t, err)
			c := newScriptClient(t, nc)
			clients = append(clients, c)
			return c
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return runCommand(t, d, h, &clients, dial)
		})
	})
}

func runCommand(t *testing.T, d *datadriven.TestData, h *fakeHandler, clients *[]*scriptClient, dial func() *scriptClient) string {
	if d.Cmd == "connect" {
		c := dial()
		var major, minor uint32 = 3, 0
		if d.HasArg("version") {
			var v string
			d.ScanArgs(t, "version", &v)
			_, err := fmt.Sscanf(v, "%d.%d", &major, &minor)
			require.NoError(t, err)
		}
		var pairs []string
		for line := range strings.Lines(d.Input) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			pairs = append(pairs, name, value)
		}
		write(t, c, startupBytes(major<<16|minor, pairs...))
		return c.readUntil(t, 'Z')
	}
	if d.Cmd == "open" {
		dial()
		return ""
	}
	c := (*clients)[len(*clients)-1]
	switch d.Cmd {
	case "send":
		var b []byte
		for line := range strings.Lines(d.Input) {
			m, err := frontendMessage(strings.TrimSpace(line))
			require.NoError(t, err)
			b = append(b, m...)
		}
		write(t, c, b)
	case "raw":
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, `"`) {
				var s string
				require.NoError(t, json.Unmarshal([]byte(line), &s))
				write(t, c, []byte(s))
				continue
			}
			b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
			require.NoError(t, err)
			write(t, c, b)
		}
	case "until":
		typ := byte('Z')
		if len(d.CmdArgs) > 0 {
			typ = d.CmdArgs[0].Key[0]
		}
		return c.readUntil(t, typ)
	case "bytes":
		var n int
		_, err := fmt.Sscan(d.CmdArgs[0].Key, &n)
		require.NoError(t, err)
		b := make([]byte, n)
		_, err = io.ReadFull(c.br, b)
		require.NoError(t, err)
		return fmt.Sprintf("%q\n", b)
	case "eof":
		return c.readUntil(t, 0)
	case "cancel":
		if !d.HasArg("late") {
			<-h.waiting
		}
		secret := c.secret
		if d.HasArg("wrong") {
			secret = bytes.Clone(secret)
			secret[len(secret)-1]++
		}
		if d.HasArg("short") {
			secret = secret[:4]
		}
		if d.HasArg("wrong") || d.HasArg("short") {
			h.waiting <- struct{}{}
		}
		cancel := dial()
		*clients = (*clients)[:len(*clients)-1]
		m := binary.BigEndian.AppendUint32(nil, uint32(12+len(secret)))
		m = binary.BigEndian.AppendUint32(m, codeCancel)
		m = binary.BigEndian.AppendUint32(m, c.pid)
		write(t, cancel, append(m, secret...))
		defer func() { require.NoError(t, cancel.nc.Close()) }()
		return cancel.readUntil(t, 0)
	case "committed":
		return fmt.Sprintln(h.committed.Load())
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return ""
}

func write(t testing.TB, c *scriptClient, b []byte) {
	_, err := c.nc.Write(b)
	require.NoError(t, err)
}

func (c *scriptClient) readUntil(t testing.TB, typ byte) string {
	var out strings.Builder
	for {
		s, got, err := c.next()
		if errors.Is(err, io.EOF) {
			out.WriteString("closed\n")
			return out.String()
		}
		require.NoError(t, err, "after:\n%s", out.String())
		out.WriteString(s + "\n")
		if got == typ {
			return out.String()
		}
	}
}
