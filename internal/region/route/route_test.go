package route

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var tokyo = Key{Kind: "ServiceCluster", Name: "tokyo"}

func TestAHomeIsBelievedForAWhileAndThenAskedForWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		table.holds(t, tokyo, "", false)
		table.Learn(tokyo, "ap")
		table.holds(t, tokyo, "ap", true)
		time.Sleep(fresh)
		table.holds(t, tokyo, "ap", false)
		time.Sleep(kept)
		table.holds(t, tokyo, "", false)
	})
}

func TestADoubtedHomeIsAskedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		table.Learn(tokyo, "ap")
		table.Doubt(tokyo, "eu") // it is not there any more
		time.Sleep(pause)
		table.holds(t, tokyo, "ap", true)
		table.Doubt(tokyo, "ap")
		table.holds(t, tokyo, "ap", false)
		table.Learn(tokyo, "ap")
		for range 10 {
			table.Doubt(tokyo, "ap")
			table.holds(t, tokyo, "ap", true)
		}
		time.Sleep(pause)
		table.holds(t, tokyo, "ap", false)
	})
}

func TestCallersShareNothing(t *testing.T) {
	table := New()
	table.Learn(tokyo, "ap")
	other := tokyo
	other.Caller[0] = 1
	table.holds(t, other, "", false)
	table.Learn(other, "eu")
	table.Forget(tokyo)
	table.holds(t, tokyo, "", false)
	table.holds(t, other, "eu", true)
}

func TestATableIsBounded(t *testing.T) {
	table := New()
	for i := range most + 1 {
		table.Learn(Key{Name: fmt.Sprint(i)}, "ap")
	}
	table.holds(t, Key{Name: "0"}, "", false)
	table.holds(t, Key{Name: "1"}, "ap", true)
}

func TestRegionsThatDidNotAnswerAreAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		regions := []string{"us", "eu", "ap"}
		order := func(first string, want ...string) {
			t.Helper()
			if got := table.Order(regions, first); !slices.Equal(got, want) {
				t.Errorf("the order is %v, want %v", got, want)
			}
		}
		order("us", "us", "ap", "eu")
		table.Answered("us", false)
		order("us", "ap", "eu", "us")
		table.Answered("us", true)
		order("", "ap", "eu", "us")
		table.Answered("ap", false)
		time.Sleep(away)
		order("", "ap", "eu", "us")
	})
}

func (t *Table) holds(test *testing.T, k Key, region string, ok bool) {
	test.Helper()
	if r, usable := t.Home(k); r != region || usable != ok {
		test.Errorf("%s is at %q, %v; want %q, %v", k.Name, r, usable, region, ok)
	}
}
