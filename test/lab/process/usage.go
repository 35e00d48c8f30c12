package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what processes have used so far.
type Usage struct {
	CPU     time.Duration
	Memory  int64 // bytes that they hold now
	Peak    int64 // bytes, the most that each has held
	Written int64 // bytes to the device that has their logs, by any process
}

// UsageOf sums up what processes have used.
func UsageOf(all ...*Process) (Usage, error) {
	u := Usage{}
	if len(all) > 0 {
		u.Written = deviceWritten(all[0].log)
	}
	for _, p := range all {
		proc := fmt.Sprintf("/proc/%d/", p.Pid())
		stat, err := os.ReadFile(proc + "stat")
		if err != nil {
			return u, err
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		const userTicks, systemTicks, perSecond = 11, 12, 100 // of the fields after the name; CLK_TCK
		for _, i := range []int{userTicks, systemTicks} {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return u, err
			}
			u.CPU += time.Duration(n) * time.Second / perSecond
		}
		u.Memory += field(proc+"status", "VmRSS:") << 10
		u.Peak += field(proc+"status", "VmHWM:") << 10
	}
	return u, nil
}

// deviceWritten is how many bytes the block device that holds file was sent so
// far. The kernel's count for a process is of no use: if the page cache is in
// large folios, it counts the whole folio for every byte changed in it.
func deviceWritten(file string) int64 {
	var st syscall.Stat_t
	if err := syscall.Stat(file, &st); err != nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", st.Dev>>8&0xfff, st.Dev&0xff))
	if err != nil {
		return 0
	}
	const sectorsWritten, sector = 6, 512
	n, _ := strconv.ParseInt(strings.Fields(string(stat))[sectorsWritten], 10, 64)
	return n * sector
}

// field is the number after a name in a file of /proc; 0 if there is none.
func field(file, name string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}
