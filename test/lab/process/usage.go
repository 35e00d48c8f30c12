package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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

// UsageOf sums up what processes and their children have used, among them children that have ended.
// Memory that several of them share counts once for each.
func UsageOf(all ...*Process) (Usage, error) {
	u := Usage{}
	if len(all) > 0 {
		u.Written = deviceWritten(all[0].log)
	}
	for _, p := range all {
		if err := u.add(p.Pid()); err != nil {
			return u, err
		}
		for _, pid := range descendants(p.Pid()) {
			_ = u.add(pid) // it may have ended; then its parent counts it
		}
	}
	return u, nil
}

// add counts a process and those of its children that it has seen end.
func (u *Usage) add(pid int) error {
	proc := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return err
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const firstTicks, perSecond = 11, 100 // user, system, and both of ended children; CLK_TCK
	for _, ticks := range f[firstTicks : firstTicks+4] {
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			return err
		}
		u.CPU += time.Duration(n) * time.Second / perSecond
	}
	u.Memory += field(proc+"status", "VmRSS:") << 10
	u.Peak += field(proc+"status", "VmHWM:") << 10
	return nil
}

// descendants are the processes that pid and its children have started and that run.
func descendants(pid int) (found []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		children, _ := os.ReadFile(list) // the thread may have ended
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				found = append(append(found, n), descendants(n)...)
			}
		}
	}
	return found
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
