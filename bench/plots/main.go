// Command plots draws the raw tables of docs/benchmarks as SVG files beside them: for each
// workload how the operations per second of xb compare with another system's. It never
// measures anything.
//
//	plots DIR
package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// ratio is one row "ratio" of a raw table.
type ratio struct {
	section  string // the heading that the table stands below
	workload string
	rate     float64 // operations per second, as a multiple of the other system's
}

// A chart has a bar for each workload, and beside it one for each further series.
type chart struct {
	title, page, file string
	series            []series
}

// series are the rows that one color stands for.
type series struct {
	name, section string
	prefix        string // of the workloads that belong to the series; it is cut off
}

var charts = []chart{
	{"Operations per second on a file, as multiples of etcd's", "etcd-api.md", "etcd-api.svg", []series{
		{"our load", "The etcd API on a file journal, against etcd on the same disk", ""},
	}},
	{"Operations per second by etcd's own tool, as multiples of etcd's", "etcd-api.md", "etcd-tool.svg", []series{
		{"etcd's tool", "By etcd's own benchmark tool", ""},
	}},
	{"What API servers ask: operations per second, as multiples", "stores.md", "stores.svg", []series{
		{"file, of etcd's", "A file journal, and etcd", ""},
		{"file, of kine's on SQLite", "A file journal, and kine on SQLite", ""},
		{"PostgreSQL, of kine's", "PostgreSQL", ""},
		{"NATS, of kine's", "NATS JetStream", ""},
	}},
	{"What API servers ask, on S3: operations per second, as multiples of t4's", "stores.md", "s3.svg", []series{
		{"R = 0", "S3, and t4", "R = 0s: "},
		{"R = 30 ms", "S3, and t4", "R = 30ms: "},
		{"R = 80 ms", "S3, and t4", "R = 80ms: "},
		{"R = 150 ms", "S3, and t4", "R = 150ms: "},
	}},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: plots DIR")
		os.Exit(2)
	}
	for _, c := range charts {
		if err := c.draw(os.Args[1]); err != nil {
			fmt.Fprintf(os.Stderr, "plots: %s: %v\n", c.file, err)
			os.Exit(1)
		}
	}
}

// ratios reads the rows "ratio" of a page. A row has the workload of the row before it.
func ratios(page string) ([]ratio, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	var out []ratio
	section, workload := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading := strings.TrimLeft(line, "#"); heading != line {
			section = strings.TrimSpace(heading)
			continue
		}
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 5:
		case strings.TrimSpace(cells[2]) != "**ratio**":
			workload = strings.TrimSpace(cells[1])
		case strings.TrimSpace(cells[3]) == "–": // the rate says nothing there
		default:
			rate, err := strconv.ParseFloat(strings.Trim(cells[3], " *×"), 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", section, workload, err)
			}
			out = append(out, ratio{section, workload, max(rate, least)})
		}
	}
	return out, nil
}

// least is the ratio that smaller ones are drawn as: the tables show two digits.
const least = 0.005

var colors = []color.Color{
	color.RGBA{0x1b, 0x5e, 0x9e, 0xff}, color.RGBA{0xe0, 0x8a, 0x1e, 0xff}, color.RGBA{0x3a, 0x8f, 0x5c, 0xff}, color.RGBA{0x9a, 0x4c, 0x95, 0xff},
}

// draw writes the chart. Bars to the left of 1 are losses; the scale is logarithmic.
func (c chart) draw(dir string) error {
	rows, err := ratios(filepath.Join(dir, c.page))
	if err != nil {
		return err
	}
	p := plot.New()
	p.Title.Text = c.title
	p.X.Tick.Marker = plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		for e := math.Ceil(low); e <= high; e++ {
			ticks = append(ticks, plot.Tick{Value: e, Label: strconv.FormatFloat(math.Exp2(e), 'g', 2, 64) + "×"})
		}
		return ticks
	})
	p.Add(plotter.NewGrid())
	var workloads []string
	width := vg.Points(18 / float64(len(c.series)))
	for i, s := range c.series {
		values := map[string]float64{}
		for _, r := range rows {
			if name, ok := strings.CutPrefix(r.workload, s.prefix); ok && r.section == s.section {
				values[name] = math.Log2(r.rate)
				if i == 0 {
					workloads = append(workloads, name)
				}
			}
		}
		if i == 0 {
			slices.Reverse(workloads) // a vertical axis begins below
		}
		bars := make(plotter.Values, len(workloads))
		for k, name := range workloads {
			v, ok := values[name]
			if !ok {
				return fmt.Errorf("%s has no workload %q", s.section, name)
			}
			bars[k] = v
		}
		b, err := plotter.NewBarChart(bars, width)
		if err != nil {
			return fmt.Errorf("%s: %w", s.section, err)
		}
		b.Horizontal, b.Color, b.LineStyle.Width = true, colors[i], 0
		b.Offset = width * vg.Length(float64(len(c.series)-1)/2-float64(i))
		p.Add(b)
		if len(c.series) > 1 {
			p.Legend.Add(s.name, b)
		}
	}
	p.NominalY(workloads...)
	p.Legend.Top, p.Legend.Left = true, p.X.Min < -2 // where no bar is
	p.Title.Padding = vg.Points(10)
	p.X.Min, p.X.Max = min(p.X.Min, -0.2), p.X.Max+0.4
	return p.Save(vg.Points(640), vg.Points(60+28*float64(len(workloads))), filepath.Join(dir, c.file))
}
