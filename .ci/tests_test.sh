#!/usr/bin/env bash
# Tests tests.py with a module whose tests pass, fail, crash, skip, or do not compile. .ci/run runs this script.
set -u
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cd "$room" || exit 1
failed=0
export GOFLAGS=-mod=mod GOWORK=off

# expect CODE NAME COMMAND... runs the command, and checks its exit code. The output must contain each line of standard
# input, and must not contain lines that start with "!".
expect() {
	local code=$1 name=$2 got
	shift 2
	"$@" >out 2>&1
	got=$?
	[ $got = "$code" ] || { echo "$name: got exit code $got, want $code: $(cat out)" >&2 && failed=1; }
	while IFS= read -r line; do
		if [ "${line#!}" != "$line" ]; then
			! grep -qF -- "${line#!}" out || { echo "$name: got \"${line#!}\" in: $(cat out)" >&2 && failed=1; }
		else
			grep -qF -- "$line" out || { echo "$name: no \"$line\" in: $(cat out)" >&2 && failed=1; }
		fi
	done
}

# file FOLDER BODY writes a package that contains one test with this body.
file() {
	mkdir -p "$1"
	printf 'package %s\n\nimport ("fmt"; "os"; "testing")\n\nfunc TestOne(t *testing.T) { fmt.Print("said\\n"); t.Log("logged"); %s; _ = os.Getpid() }\n' "$1" "$2" >"$1/one_test.go"
}
printf 'module example.com/m\n\ngo 1.26\n' >go.mod
file good 't.Run("part", func(t *testing.T) { t.Skip("needs y: 17 of\n/tmp/x") })'
expect 0 good "$here/tests.py" --record records/good.json go test -count=1 ./good <<'END'
ok  	example.com/m/good	
tests: 1 passed, 0 failed, 1 skipped
 s of CPU time
     1 skipped: needs y: N of PATH
slowest packages:
 s  good
slowest tests:
 s  good TestOne
!TestOne/part
!said
!logged
END
file bad 't.Run("part", func(t *testing.T) { t.Error("wrong") }); t.Run("other", func(t *testing.T) { t.Log("silent") })'
expect 1 bad "$here/tests.py" --record bad.json go test -count=1 ./good ./bad <<'END'
ok  	example.com/m/good	
    one_test.go:5: wrong
--- FAIL: TestOne/part
FAIL	example.com/m/bad	
tests: 2 passed, 2 failed, 1 skipped
!silent
END
file crash 'panic("broken")'
expect 1 crash "$here/tests.py" go test -count=1 ./crash <<'END'
panic: broken
FAIL	example.com/m/crash	
END
file leaves 'os.Exit(7)'
expect 1 exit "$here/tests.py" go test -count=1 ./leaves <<'END'
logged
FAIL	example.com/m/leaves	
END
file compile 'undefined()'
expect 1 compile "$here/tests.py" go test -count=1 ./compile <<'END'
undefined: undefined
FAIL	example.com/m/compile [build failed]
END
expect 1 'no package' "$here/tests.py" go test ./none <<'END'
/none
END

printf '# comment\n^needs y: \ta reason\n' >allowed
expect 0 judge "$here/tests.py" --judge allowed records/good.json <<'END'
1 tests were skipped in every run:
1: a reason
    good TestOne/part: needs y: 17 of /tmp/x
ok  	example.com/m/good	
END
printf '^needs z: \ta reason\n' >allowed
expect 1 'judge: not allowed' "$here/tests.py" --judge allowed records/good.json <<'END'
good TestOne/part: skipped without a justification: needs y: 17 of /tmp/x
END
printf '^needs y: \t\n' >allowed
expect 1 'judge: no justification' "$here/tests.py" --judge allowed records/good.json <<'END'
allowed:1: want a regular expression, a tab and a justification
END
sed 's/"skip"/"pass"/' records/good.json >ran.json
: >allowed
expect 0 'judge: it ran elsewhere' "$here/tests.py" --judge allowed records/good.json ran.json <<'END'
0 tests were skipped in every run:
END
: >empty.json
expect 1 'judge: no test' "$here/tests.py" --judge allowed empty.json <<'END'
empty.json: no test ran
END
exit $failed
