package record

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

var rewrite = flag.Bool("rewrite", false, "write the examples into docs/journal-format.md")

const document = "../../docs/journal-format.md"

// piece is some bytes of an example, in hex, and what they are.
type piece struct{ hex, what string }

// The examples are written by hand from the document's rules, so that they
// check the code and the document at once.
var (
	exampleRecord = []piece{
		{"78627203", "magic: \"xbr\", format 3"},
		{"000102030405060708090a0b0c0d0e0f", "journal"},
		{"1122334455667788", "writer 0x8877665544332211"},
		{"0100000000000000", "number 1"},
		{"0000000000000000", "anchor: before slot 1"},
		{"be45cb2605bf36bebde684841a28f0fd43c69850a3dce5fedba69928ee3a8991", "chain there: SHA-256 of the journal's id"},
		{"01", "kind: batch"},
		{"00", "flags: not compressed"},
		{"5000", "turns: asked for, 80 ms away"},
		{"1a000000", "26 bytes of body"},
		{"03", "body: 3 requests"},
		{"03", "  1: grant a lease"},
		{"0e", "    lease 7"},
		{"78", "    60 seconds"},
		{"00", "    since: not used"},
		{"01", "  2: transaction"},
		{"01", "    1 compare"},
		{"0200", "      mod revision, equal"},
		{"032f61", "      key of 3-1 bytes: /a"},
		{"00", "      no end: one key"},
		{"00", "      0"},
		{"01", "    then, 1 operation"},
		{"0200", "      put, no flags"},
		{"00", "      the key written last"},
		{"00", "      no end"},
		{"026869", "      value of 2 bytes: hi"},
		{"0e", "      lease 7"},
		{"00", "    else, none"},
		{"02", "  3: compact"},
		{"04", "    revision 2"},
		{"46ccd1f3", "CRC-32C of all before"},
	}
	exampleFirst = []piece{
		{"01", "slot 1"},
		{"04", "revision 2"},
		{"04", "compacted 2"},
		{"01", "1 lease"},
		{"0e7801", "  lease 7, 60 seconds, granted in slot 1"},
		{"01", "1 writer"},
		{"91c4cca1d4cad9bb8801", "  writer 0x8877665544332211"},
		{"01", "  its last slot 1"},
		{"01", "  its highest batch 1"},
		{"02000000", "  seen: bit 1 of the first of 4 words"},
	}
	exampleKeys = []piece{
		{"022f61", "key of 2 bytes: /a"},
		{"04", "  mod revision 2"},
		{"02", "  version 1"},
		{"04", "  create revision 2"},
		{"0e", "  lease 7"},
		{"026869", "  value of 2 bytes: hi"},
		{"00", "  no more versions"},
	}
)

func join(t *testing.T, pieces []piece) (b []byte) {
	t.Helper()
	for _, p := range pieces {
		raw, err := hex.DecodeString(p.hex)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, raw...)
	}
	return b
}

// draw renders an example for the document: offset, bytes, meaning.
func draw(pieces []piece) string {
	var out strings.Builder
	at := 0
	for _, p := range pieces {
		raw := p.hex
		for i := 0; i < len(raw); i += 32 {
			what := ""
			if i == 0 {
				what = "  " + p.what
			}
			fmt.Fprintf(&out, "%4d  %s\n", at+i/2, strings.TrimRight(fmt.Sprintf("%-32s%s", raw[i:min(i+32, len(raw))], what), " "))
		}
		at += len(raw) / 2
	}
	return out.String()
}

func exampleRequests() []*mvcc.Request {
	return []*mvcc.Request{
		{Kind: mvcc.LeaseGrant, Lease: 7, TTL: 60},
		{
			Kind:     mvcc.Txn,
			Compares: []mvcc.Compare{{Range: mvcc.KeyRange{Key: "/a"}, Target: mvcc.TargetMod, Result: mvcc.Equal, Int: 0}},
			Then:     []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: "/a"}, Value: []byte("hi"), Lease: 7}},
		},
		{Kind: mvcc.Compact, Revision: 2},
	}
}

func TestExamples(t *testing.T) {
	id := journal.ID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	chains := NewChains(id)
	h := Header{Journal: id, Writer: 0x8877665544332211, Number: 1, Anchor: 0, AnchorChain: chains.Last(), Kind: Batch, Turns: 80}
	rec := Append(nil, &h, mvcc.AppendRequests(nil, exampleRequests()), false)
	if want := join(t, exampleRecord); !bytes.Equal(rec, want) {
		t.Errorf("the record is\n%x, not as the document says\n%x", rec, want)
	}
	if err := chains.Check(id, &h); err != nil {
		t.Error(err)
	}

	_, body, err := Parse(rec)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := mvcc.ParseRequests(body)
	if err != nil {
		t.Fatal(err)
	}
	s := mvcc.New()
	for _, res := range s.Apply(1, &mvcc.Batch{From: id, Writer: h.Writer, Number: h.Number, Requests: requests}, true) {
		if res.Err != nil {
			t.Error(res.Err)
		}
	}
	want := [][]byte{join(t, exampleFirst), join(t, exampleKeys)}
	err = s.Freeze().Parts(func(part []byte) error {
		if len(want) == 0 || !bytes.Equal(part, want[0]) {
			t.Errorf("a part is\n%x, not as the document says\n%x", part, want)
		}
		want = want[1:]
		return nil
	})
	if err != nil || len(want) != 0 {
		t.Errorf("%d parts are missing, %v", len(want), err)
	}
	for name, pieces := range map[string][]piece{"record": exampleRecord, "first part": exampleFirst, "other part": exampleKeys} {
		inDocument(t, name, draw(pieces))
	}
}

// inDocument checks, or with -rewrite writes, the block of the document that
// follows the comment naming it.
func inDocument(t *testing.T, name, want string) {
	t.Helper()
	doc, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	start := fmt.Sprintf("<!-- example: %s -->\n```\n", name)
	before, rest, ok := strings.Cut(string(doc), start)
	got, after, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatalf("%s has no example %q", document, name)
	}
	if got == want {
		return
	}
	if !*rewrite {
		t.Errorf("%s: example %q is not what it should be; run go test ./internal/record -rewrite\n%s", document, name, want)
		return
	}
	if err := os.WriteFile(document, []byte(before+start+want+"```\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
