package weight

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]int64{
		``:                   0,
		`{}`:                 2 + object,
		`[1,2]`:              5 + 2*other,
		`{"a":"{[,:\"{["}`:   16 + object + other,
		`{"a\\":{}}`:         10 + 2*object + other,
		`[{},[]] {"a":null}`: 18 + 2*other + other + 2*object + other,
	} {
		if got := Of([]byte(text)); got != want {
			t.Errorf("%s weighs %d; want %d", text, got, want)
		}
	}
}

// TestReader: a value that is too heavy is not read to its end, however it
// comes; many light ones are.
func TestReader(t *testing.T) {
	light := strings.Repeat(`{"a":[1,2,3]}`+"\n", 1000)
	for _, slow := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
		got, err := io.ReadAll(NewReader(slow(strings.NewReader(light)), 2000))
		if err != nil || string(got) != light {
			t.Errorf("light values: %d bytes, %v", len(got), err)
		}
		got, err = io.ReadAll(NewReader(slow(strings.NewReader(light+"["+strings.Repeat("{},", 100)+"]")), 2000))
		if !errors.Is(err, ErrTooHeavy) || len(got) > len(light)+10 {
			t.Errorf("a heavy value: %d bytes of it, %v", len(got)-len(light), err)
		}
	}
}

func TestBudget(t *testing.T) {
	b := Budget{Left: 3000}
	for range 5 {
		if err := b.Spend([]byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Spend([]byte(`{}`)); !errors.Is(err, ErrTooHeavy) {
		t.Errorf("the sixth: %v", err)
	}
}

// FuzzWeight: decoding a text into maps and slices, the heaviest form there is,
// allocates no more than a small multiple of what the text is said to weigh.
func FuzzWeight(f *testing.F) {
	for _, piece := range []string{`{}`, `[]`, `""`, `0`, `{"a":{}}`, `{"a":[{}]}`, `[[[[]]]]`, `{"a":1,"b":2,"c":3}`, `"x"`, `null`} {
		f.Add([]byte("["+strings.TrimSuffix(strings.Repeat(piece+",", 500), ",")+"]"), uint8(0))
		f.Add([]byte(piece), uint8(200))
	}
	f.Fuzz(func(t *testing.T, text []byte, times uint8) {
		if len(text) > 1<<20 || !json.Valid(text) {
			return
		}
		all := append([]byte("["), text...)
		for range times {
			all = append(append(all, ','), text...)
		}
		all = append(all, ']')
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var v any
		err := json.Unmarshal(all, &v)
		runtime.ReadMemStats(&after)
		if err != nil {
			return
		}
		if got, most := int64(after.TotalAlloc-before.TotalAlloc), 4*Of(all)+64<<10; got > most {
			t.Errorf("%d bytes were allocated for a weight of %d", got, Of(all))
		}
		runtime.KeepAlive(v)
	})
}
