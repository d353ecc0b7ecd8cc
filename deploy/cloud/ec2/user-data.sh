#!/bin/sh
# Prints the user data (cloud-init) of an EC2 instance that trains. The user data contain the files of this folder.
#
#   RELEASE=https://… SHA256=… TRAIN_ARGUMENTS='-c configs/resnet50.toml …' deploy/cloud/ec2/user-data.sh >user-data.yaml
#
# RELEASE is the address of the archive of "make dist", for example a presigned address of S3. SHA256 is the hash of the
# archive (sha256sum). The instance repeats a download that fails.
#
# TOKEN_COMMAND is a command that prints the token of a run on several machines, such as:
#   aws secretsmanager get-secret-value --secret-id hetero-token --query SecretString --output text
# User data must not contain the token itself, because every program of the instance can read them.
#
# systemd splits TRAIN_ARGUMENTS at spaces. Quotes work as in a shell. A backslash makes the next character an ordinary
# one, also within quotes: write \\ for a backslash. docs/cloud.md explains this file.
#
# Exit codes: 0 the user data are printed; 2 a value cannot be used.
set -eu
cd "$(dirname "$0")"
refuse() {
	printf 'user-data.sh: %s\n' "$1" >&2
	exit 2
}
case ${1-} in
-h | --help)
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' user-data.sh
	exit 0
	;;
esac
[ $# -eq 0 ] || refuse "got the argument $1, want none: the values are variables (--help)"
[ -n "${RELEASE:-}" ] || refuse "RELEASE: not set, want the address of the archive of a release"
[ -n "${SHA256:-}" ] || refuse "SHA256: not set, want the output of sha256sum for the archive"
[ -n "${TRAIN_ARGUMENTS:-}" ] || refuse "TRAIN_ARGUMENTS: not set, want the arguments of hetero-train train"
TOKEN_COMMAND=${TOKEN_COMMAND:-}
SHA256=${SHA256%% *} # removes the name of the file, which sha256sum prints after the hash
newline='
'
# one_line NAME TEXT refuses characters that end a line of YAML, or that YAML forbids. LC_ALL=C matches bytes.
broken=$(printf '[\001-\037\177]|\302[\200-\237]|\342\200[\250\251]')
one_line() {
	case $2 in
	*"$newline"*) refuse "$1: got a line break, want one line" ;;
	esac
	! printf '%s\n' "$2" | LC_ALL=C grep -Eq "$broken" || refuse "$1: got a control character, such as a tab, want none"
}
one_line RELEASE "$RELEASE"
one_line SHA256 "$SHA256"
one_line TRAIN_ARGUMENTS "$TRAIN_ARGUMENTS"
one_line TOKEN_COMMAND "$TOKEN_COMMAND"
case $RELEASE in
*[\"\\\ ]*) refuse "RELEASE: got $RELEASE, want an address without spaces, quotes and backslashes" ;;
https://?* | http://?*) ;;
*) refuse "RELEASE: got $RELEASE, want an address that begins with https://" ;;
esac
printf '%s\n' "$SHA256" | grep -Eqx '[0-9a-f]{64}' || refuse "SHA256: got $SHA256, want 64 hexadecimal digits"
# Regular expressions for the parts of a text that systemd splits. A backslash makes the next character an ordinary one.
q=\'
part='[^"'$q'\\]|\\.|"([^"\\]|\\.)*"|'$q'([^'$q'\\]|\\.)*'$q
differs=$q'[^'$q'\\]*\\|"([^"\\]|\\.)*\\[^"\\$`]' # in the quotes of a shell, this backslash is an ordinary character
arguments_match() { printf '%s\n' "$TRAIN_ARGUMENTS" | LC_ALL=C grep -Eq "$1"; }
arguments_match "^($part)*\$" ||
	refuse "TRAIN_ARGUMENTS: got $TRAIN_ARGUMENTS, want each quote closed, and a character after each backslash"
! arguments_match "^($part)*($differs)" ||
	printf '%s\n' 'user-data.sh: warning: TRAIN_ARGUMENTS: systemd removes a backslash within quotes: write \\ for each' >&2
sh -nc "$TOKEN_COMMAND" 2>/dev/null || refuse "TOKEN_COMMAND: got a text with an error of syntax, want a command of a shell"

# indented N FILE prints the file as a block of YAML, indented by N spaces.
indented() { sed "s/^\(.\)/$(printf "%$1s" '')\1/" "$2"; }
# quoted TEXT prints the text as one word for a shell.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
# setting TEXT prints the text as a value for systemd's EnvironmentFile.
setting() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"`$]/\\&/g')"; }

data=$(
	cat <<END
#cloud-config
users:
  - default
  - name: hetero
    system: true
    shell: /usr/sbin/nologin
    homedir: /var/lib/hetero-train
write_files:
  - path: /etc/hetero-train/environment
    permissions: "0644"
    content: |
      HETERO_TOKEN_FILE=$([ -z "$TOKEN_COMMAND" ] || echo /etc/hetero-train/token)
      TRAIN_ARGUMENTS=$(setting "$TRAIN_ARGUMENTS")
  - path: /etc/systemd/system/hetero-train.service
    permissions: "0644"
    content: |
$(indented 6 hetero-train.service)
  - path: /etc/systemd/system/hetero-spot.service
    permissions: "0644"
    content: |
$(indented 6 hetero-spot.service)
  - path: /opt/hetero-train/bin/spot-watch.sh
    permissions: "0755"
    content: |
$(indented 6 spot-watch.sh)
  - path: /opt/hetero-train/install.sh
    permissions: "0700"
    content: |
      #!/bin/sh
      set -eu
      umask 022
      archive=/opt/hetero-train/release.tar.gz
      # not as an argument, because all users can read command lines, and a presigned address is a secret
      until printf 'url = "%s"\n' $(quoted "$RELEASE") | curl -fsSL --retry 5 --config - -o \$archive; do
          echo "the download of the release failed; it is repeated in 30 s" >&2
          sleep 30
      done
      echo "$SHA256  \$archive" | sha256sum -c -
      tar -xzf \$archive --strip-components=1 -C /opt/hetero-train
      rm \$archive
      install -d -o hetero -g hetero /var/lib/hetero-train
      ln -sfn /opt/hetero-train/share/hetero-train/configs /var/lib/hetero-train/configs
$(if [ -n "$TOKEN_COMMAND" ]; then
	printf '      %s\n' "(umask 077; sh -c $(quoted "$TOKEN_COMMAND") >/etc/hetero-train/token)" \
		'[ -s /etc/hetero-train/token ] || { echo "TOKEN_COMMAND printed no token" >&2; exit 1; }' \
		'chown hetero: /etc/hetero-train/token'
fi)
      systemctl daemon-reload
      systemctl enable --now hetero-train.service
runcmd:
  - [/opt/hetero-train/install.sh]
END
)
most=16384 # limit of EC2 for user data, in bytes
size=$(printf '%s\n' "$data" | wc -c)
[ "$size" -le $most ] ||
	refuse "the user data have $((size)) bytes, and EC2 takes $most: shorten TRAIN_ARGUMENTS and TOKEN_COMMAND"
printf '%s\n' "$data"
