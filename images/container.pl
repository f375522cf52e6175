#!/usr/bin/perl
# images/container.pl - from a container image to an EROFS file and what the template says of it.
#
# container.pl within FOLDER MAX_MIB COMMAND...: run it, and end it when FOLDER grows beyond.
# container.pl LAYOUT OUT MAX_MIB: LAYOUT is an OCI image layout with one image, tagged `image`
# (skopeo made it); OUT is an empty folder.  It gets rootfs.img; conf, the records of
# agent/image_conf.h; warm_up and contexts, two lists in JSON for the manifest.
# Environment: ID_BASE (agent/ids.h), SOURCE_DATE_EPOCH, UUID; CONTEXTS=no starts no interpreter; CLOCHE_UNPACK_REST.
#
# Nobody has read what is in the image.  So it is unpacked (umoci), changed and packed in a user
# namespace, whose root is nobody on the host, without network; what changes the tree has changed
# its root to it, so that a link leads nowhere else; no program of the image is run.  What it takes
# is bounded by MAX_MIB: layers of a few KiB can hold any number of zeros.
use strict;
use warnings;
use Cwd ();
use Fcntl qw(O_RDONLY O_WRONLY O_CREAT O_EXCL O_NOFOLLOW O_NONBLOCK S_ISDIR S_ISREG S_ISLNK);
use File::Find ();
use JSON::PP ();
use List::Util qw(min);
use POSIX ();
use Time::HiRes qw(time);

# agent/ids.h, and the bounds of agent/image_conf.h and worker/template.h.
use constant {
    USER => 1000, IDS => 30000, NOBODY => 65534, NOBODY_OUT => 65533,
    CONF_MAX => 65536, ENV_MAX => 256, PATH_MAX => 1024,
    REST_S => $ENV{CLOCHE_UNPACK_REST} || 30, # of the unpacker, which then waits for what never comes
    FILES_A_MIB => 64,          # allowed: a million for 16 GiB
    TEXT_MAX => 1 << 20,        # of a file of the image that is read: passwd, group
    OUTSIDE => 0x60000000,      # what the namespace's ids are on the host, when root begins: nobody's
    OUTSIDE_COUNT => 0x1000000,
    SYSTEM => qr{^/(?:(?:bin|boot|dev|etc|lib\w*|proc|run|sbin|sys)(?:/.*)?|(?:home|media|mnt|opt|srv|tmp|usr(?:/\w+|/local/\w+)?|var(?:/\w+)?))?\z},
    CLONE_NEWUSER => 0x10000000, CLONE_NEWNET => 0x40000000, SYS_unshare => 272,
};

$ENV{PATH} .= ':/usr/sbin:/sbin';
sub say { print STDERR "images: @_\n" }
sub fail { # fail CAUSE REMEDY
    say("error: $_[0]");
    say("remedy: $_[1]") if $_[1];
    exit 1;
}

# --- the namespace ---------------------------------------------------------------------------------
sub status { return $? & 127 ? 1 : $? >> 8 }

sub write_map { # write_map PID: the kernel takes any range of root
    for my $name (qw(uid_map gid_map)) {
        open(my $map, '>', "/proc/$_[0]/$name") or fail("open /proc/$_[0]/$name: $!");
        print $map '0 ' . OUTSIDE . ' ' . OUTSIDE_COUNT . "\n";
        close $map or fail("write /proc/$_[0]/$name: $!");
    }
}

sub in_namespace { # in_namespace CODE: run as its root; the code's exit status
    my ($code) = @_;
    pipe(my $ready, my $am_ready) && pipe(my $go, my $may_go) or fail("pipe: $!");
    my $pid = fork // fail("fork: $!");
    if ($pid == 0) {
        syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNET) == 0
            or fail("no user namespace can be made: $!", 'sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone');
        syswrite $am_ready, 'x';
        close $may_go;
        sysread($go, my $word, 1) or exit 1;
        $) = '0 0'; $( = 0; $> = 0; $< = 0;
        exit $code->();
    }
    close $am_ready;
    if (sysread $ready, my $word, 1) {
        write_map($pid);
        syswrite $may_go, 'x';
    }
    waitpid $pid, 0;
    return status();
}

# --- bounds ----------------------------------------------------------------------------------------
sub used { # used FOLDER OPTION: as du counts
    open(my $du, '-|', 'du', '-s', $_[1], $_[0]) or return 0;
    my ($n) = (<$du> // '') =~ /^(\d+)/;
    return $n // 0;
}

# Empty files take no room but an inode each.
sub is_over { # is_over FOLDER MIB
    return used($_[0], '-m') > $_[1] || used($_[0], '--inodes') > $_[1] * FILES_A_MIB;
}

sub worked { # worked PID: what it has computed so far, in ticks
    open(my $stat, '<', "/proc/$_[0]/stat") or return 0;
    my @fields = split ' ', (<$stat> // '') =~ s/^.*\) //r;
    return ($fields[11] // 0) + ($fields[12] // 0);
}

sub bounded { # bounded FOLDER MIB REST COMMAND...: ended when FOLDER grows beyond, or when it rests so many seconds (0 = as long as it likes); its exit status
    my ($folder, $mib, $rest, @command) = @_;
    my ($last_work, $last_time) = (0, time);
    my $pid = fork // fail("fork: $!");
    if ($pid == 0) {
        exec @command or POSIX::_exit(127);
    }
    my $ended = 0;
    until ($ended) {
        my $begun = time;
        $ended = waitpid($pid, POSIX::WNOHANG()) != 0;
        my ($status, $over) = (status(), is_over($folder, $mib));
        return $status if $ended && !$over;
        if ($over) {
            kill 'KILL', $pid and waitpid $pid, 0 if !$ended;
            fail("the image takes more than $mib MiB or " . $mib * FILES_A_MIB . ' files', 'allow more by --max-size');
        }
        my $work = worked($pid);
        ($last_work, $last_time) = ($work, time) if $work != $last_work || !$rest;
        if (time - $last_time > $rest && $rest) {
            kill 'KILL', $pid and waitpid $pid, 0;
            fail("$command[0] stands still for $rest s", 'a pipe where a file is expected, as /etc/passwd, does that');
        }
        select undef, undef, undef, 0.1 + min(1, time - $begun); # half of the time at most
    }
}

# --- what the image says ---------------------------------------------------------------------------
sub read_text { # read_text PATH: no link, no pipe, no more than TEXT_MAX; "" when there is none
    sysopen(my $file, $_[0], O_RDONLY | O_NOFOLLOW | O_NONBLOCK) or return '';
    return '' if !S_ISREG((stat $file)[2]);
    my $text = '';
    1 while length $text < TEXT_MAX && sysread $file, $text, TEXT_MAX - length $text, length $text;
    return $text;
}

sub read_json { # read_json PATH WHAT
    my $json = eval { JSON::PP->new->utf8->decode(read_text($_[0])) };
    fail("$_[1] is no JSON", 'is it a whole image?') if !$json || ref $json ne 'HASH';
    return $json;
}

sub blob { # blob LAYOUT DESCRIPTOR WHAT: the JSON that it points to; skopeo has compared its digest
    my ($hex) = (ref $_[1] eq 'HASH' ? $_[1]{digest} // '' : '') =~ /^sha256:([0-9a-f]{64})$/
        or fail("the image names no $_[2]", 'is it a whole image?');
    return read_json("$_[0]/blobs/sha256/$hex", $_[2]);
}

sub texts { return map { my $text = $_; utf8::encode($text); $text } grep { defined && !ref } @{ref $_[0] eq 'ARRAY' ? $_[0] : []} }

sub image_config { # image_config LAYOUT: {env, cwd, command}: the last as a shell takes it
    my $index = read_json("$_[0]/index.json", 'index.json');
    my $manifest = blob($_[0], ref $index->{manifests} eq 'ARRAY' ? $index->{manifests}[0] : undef, 'manifest');
    my $about = blob($_[0], $manifest->{config}, 'configuration');
    my ($machine) = texts([($about->{os} // 'linux') . '/' . ($about->{architecture} // 'amd64')]);
    fail("the image is for $machine, guests are linux/amd64", 'pull or build it for that: --platform linux/amd64') if $machine ne 'linux/amd64';
    my $config = ref $about->{config} eq 'HASH' ? $about->{config} : {};
    my ($cwd) = texts([$config->{WorkingDir}]);
    my %env; # the last of a name counts
    for my $pair (texts($config->{Env})) {
        if ($pair =~ /^([^=\0]+)=([^\0]*)\z/) { $env{$1} = $2 } else { say('a variable without a name or with a NUL is left out') }
    }
    fail(scalar(keys %env) . ' variables, at most ' . ENV_MAX, 'the image sets them by ENV') if keys %env > ENV_MAX;
    my @command = (texts($config->{Entrypoint}), texts($config->{Cmd}));
    return {env => \%env, cwd => $cwd // '', command => join(' ', map { m{^[\w./:=@%+,-]+\z} ? $_ : "'" . s/'/'\\''/gr . "'" } @command)};
}

# --- the tree; from here on its root is ours --------------------------------------------------------
sub folder { # folder PATH MODE: a real one, whatever was there
    my ($path, $mode) = @_;
    my @is = lstat $path;
    unlink $path or fail("$path is in the way: $!") if @is && !S_ISDIR($is[2]);
    mkdir $path or fail("make $path: $!") if !@is || !S_ISDIR($is[2]);
    chmod $mode, $path if defined $mode;
}

sub make_folders { # make_folders PATH UID GID: with those above it, each new one theirs; links are followed
    my ($whole, $uid, $gid) = @_;
    my $path = '';
    for my $part (grep { $_ ne '' } split m{/}, $whole) {
        $path .= "/$part";
        next if -d $path;
        mkdir $path, 0755 or fail("the image's folder $whole cannot be made: $!", "the image has something else at $path");
        chown $uid, $gid, $path;
    }
}

sub write_text { # write_text PATH TEXT: a file of its own, whatever was there
    unlink $_[0];
    sysopen(my $file, $_[0], O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644) or fail("write $_[0]: $!");
    print $file $_[1];
    close $file or fail("write $_[0]: $!");
}

# The image's own user becomes `user`: it takes the id USER, and who had that takes its.
sub swapped { return $_[0] == $_[1] ? USER : $_[0] == USER ? $_[1] : $_[0] }

sub swap_ids { # swap_ids PATH FIELD => ID ...: in a table of users or groups
    my ($path, %field) = @_;
    my $text = join '', map {
        my @fields = split /:/, $_, -1;
        for my $at (keys %field) {
            $fields[$at] = swapped($fields[$at], $field{$at}) if $field{$at} != 0 && defined $fields[$at] && $fields[$at] =~ /^\d{1,9}$/;
        }
        join(':', @fields) . "\n";
    } split /\n/, read_text($path);
    write_text($path, $text) if $text ne '';
}

sub find_user { # ($name, $home) of the id USER, made if there is none
    my ($name, $home, %taken);
    my @people = split /\n/, read_text('/etc/passwd');
    my @groups = split /\n/, read_text('/etc/group');
    for (@people) {
        my @fields = split /:/;
        next if @fields < 6 || $fields[2] !~ /^\d+$/;
        $taken{$fields[0]} = 1;
        ($name, $home) = @fields[0, 5] if $fields[2] == USER && !defined $name;
    }
    if (!defined $name) {
        $name = $taken{user} ? 'sandbox' : 'user';
        write_text('/etc/passwd', join "\n", @people, "$name:x:1000:1000:$name:/home/user:/bin/sh", '');
        write_text('/etc/group', join "\n", @groups, "$name:x:1000:", '') if !grep { /^[^:]*:[^:]*:1000:/ } @groups;
    }
    my $is_place = defined $home && $home =~ m{^/[^\0]+\z} && length $home <= PATH_MAX && $home !~ m{^/(?:nonexistent|dev|proc|sys|run)(?:/|\z)};
    return ($name =~ /^[\w.\@-]{1,64}\z/ ? $name : 'user', $is_place ? $home : '/home/user');
}

sub give { # give PATH: to the user, with all that is in it
    File::Find::find({no_chdir => 1, wanted => sub { POSIX::lchown(USER, USER, $_) }}, $_[0]);
}

sub prepare { # prepare CONFIG UID GID: what the guest expects of a tree; ($name, $home, $cwd)
    my ($config, $uid, $gid) = @_;
    folder($_, 0755) for qw(/dev /proc /sys /run /etc);
    folder('/tmp', 01777);
    rename '/run/cloche', '/run/cloche.image'; # the agent's own is made at boot
    unlink '/run/cloche';
    if ($uid != 0) {
        swap_ids('/etc/passwd', 2 => $uid, 3 => $gid);
        swap_ids('/etc/group', 2 => $gid);
    }
    my ($name, $home) = find_user();
    my @own = $uid != 0 ? ($uid, $gid || USER) : (USER, USER); # move_owners() makes the former the latter
    folder($_, 0755) for grep { !-d } qw(/root /home); # a link may lead to one
    make_folders($home, @own);
    symlink $home, '/home/user' if !-d '/home/user'; # where many a program expects it
    my $cwd = $config->{cwd};
    fail('its WORKDIR has more than ' . PATH_MAX . ' bytes or a NUL') if length $cwd > PATH_MAX || $cwd =~ /\0/;
    $cwd = "/$cwd" if $cwd ne '' && $cwd !~ m{^/};
    make_folders($cwd, @own);
    # Who made the image expected to be root there.
    give(Cwd::realpath($cwd)) if $uid == 0 && $cwd ne '' && Cwd::realpath($cwd) !~ SYSTEM;
    write_text('/etc/hostname', "localhost\n");
    write_text('/etc/hosts', "127.0.0.1 localhost\n");
    write_text('/etc/machine-id', '');
    write_text('/etc/resolv.conf', '');
    return ($name, $home, $cwd);
}

# Owners move to the ids of user code; ids beyond those are nobody's.  setuid bits would mean nothing.
sub move_owners { # move_owners UID GID
    my ($uid, $gid) = @_;
    my (%seen, $nobodys);
    my $moved = sub {
        my ($id, $own) = @_;
        $id = swapped($id, $own) if $own != 0;
        return $id + $ENV{ID_BASE} if $id < IDS;
        $nobodys++ if $id != NOBODY;
        return NOBODY_OUT;
    };
    File::Find::finddepth({no_chdir => 1, wanted => sub {
        my ($inode, $mode, $owner, $group) = (lstat $_)[1, 2, 4, 5];
        return if !defined $inode || $seen{$inode}++; # a hard link moves once
        POSIX::lchown($moved->($owner, $uid), $moved->($group, $gid), $_) or fail("change the owner of $_: $!");
        chmod $mode & (S_ISREG($mode) ? 01777 : 03777), $_ if !S_ISLNK($mode);
    }}, '/');
    say("owners above " . (IDS - 1) . " are `nobody` now: $nobodys") if $nobodys;
}

sub has_program { # has_program NAME PATH
    return scalar grep { m{^/} && -f "$_/$_[0]" && -x _ } split /:/, $_[1];
}

# A Python that can run agent/runners/python.py, as far as its files tell; nobody runs it to see.  One
# that cannot would keep the whole template from starting.
sub has_python { # has_python PATH
    for my $folder (grep { m{^/} } split /:/, $_[0]) {
        my $program = Cwd::realpath("$folder/python3") // next;
        my ($bin, $minor) = $program =~ m{^(.*)/python3\.(\d+)\z} or next;
        return -x $program && $minor >= 8 && !grep { !-f "$bin/../lib/python3.$minor/$_" } map { "$_.py" } qw(ast base64 linecache threading traceback types asyncio/__init__ json/__init__);
    }
    return 0;
}

sub facts { # facts CONFIG NAME HOME CWD: conf, warm_up, contexts
    my ($config, $name, $home, $cwd) = @_;
    my $path = $config->{env}{PATH} || '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
    my @records = ("name=$name", "home=$home", $cwd ne '' ? "cwd=$cwd" : (), map { "env=$_=$config->{env}{$_}" } sort keys %{$config->{env}});
    my $conf = join '', map { "$_\0" } @records;
    fail('its ENV takes more than ' . CONF_MAX . ' bytes') if length $conf > CONF_MAX;
    my (@warm_up, @contexts);
    push @warm_up, ['true'] if has_program('true', $path);
    # What code often imports is there already, as far as this Python has it.
    my $preload = "import importlib\nfor name in 'asyncio base64 collections concurrent.futures csv dataclasses datetime decimal functools hashlib itertools json math pathlib random re shutil "
        . "sqlite3 statistics subprocess tempfile textwrap threading time typing urllib.request uuid'.split():\n    try:\n        importlib.import_module(name)\n    except ImportError:\n        pass\ndel importlib, name";
    push @contexts, {language => 'python', preload => $preload, warm_up => "print(6 * 7)\n6 * 7"} if ($ENV{CONTEXTS} // '') ne 'no' && has_python($path);
    my $json = JSON::PP->new->canonical;
    return ($conf, $json->encode(\@warm_up), $json->encode(\@contexts));
}

# --- the whole way ---------------------------------------------------------------------------------
sub change_tree { # change_tree TREE CONFIG UID GID OUT: by a process whose root is TREE
    my ($tree, $config, $uid, $gid, $out) = @_;
    my %file;
    for my $name (qw(conf warm_up contexts)) {
        open($file{$name}, '>', "$out/$name") or fail("write $out/$name: $!");
    }
    my $pid = fork // fail("fork: $!");
    if ($pid == 0) {
        chdir $tree and chroot '.' or fail("change the root to $tree: $!");
        chdir '/';
        umask 022;
        my @user = prepare($config, $uid, $gid);
        my @facts = facts($config, @user);
        move_owners($uid, $gid);
        print {$file{$_}} shift @facts for qw(conf warm_up contexts);
        close $file{$_} or fail("write $_: $!") for keys %file;
        POSIX::_exit(0);
    }
    waitpid $pid, 0;
    return status();
}

sub build { # build LAYOUT OUT MAX_MIB: as the namespace's root; exit status
    my ($layout, $out, $mib) = @_;
    my $bundle = "$out/bundle";
    my $status = bounded($out, $mib, REST_S, 'umoci', '--log=error', 'unpack', '--image', "$layout:image", $bundle);
    fail('umoci cannot unpack the image', 'see above; "lchown: invalid argument" is an owner beyond the ids that can be had here: ' . (OUTSIDE_COUNT - 1) . ' as root, else those of /etc/subuid') if $status;
    my $process = read_json("$bundle/config.json", 'what umoci made of it')->{process};
    my ($uid, $gid) = @{$process->{user} // {}}{qw(uid gid)};
    fail('its USER has no id') if !defined $uid || !defined $gid || $uid < 0 || $gid < 0;
    my $config = image_config($layout);
    $status = change_tree("$bundle/rootfs", $config, $uid, $gid, $out);
    return $status if $status;
    say("its own command is: $config->{command}") if $config->{command} =~ /^[[:print:]]{1,500}\z/;
    return system('mkfs.erofs', '-d0', '--quiet', '-zlz4hc', "-T$ENV{SOURCE_DATE_EPOCH}", "-U$ENV{UUID}", '-x-1', '--exclude-regex=^(dev|proc|sys)/.+',
        "$out/rootfs.img", "$bundle/rootfs") == 0 ? 0 : 1;
}

sub build_and_clean { # its tree is the namespace's, so nobody else may be able to remove it
    my $pid = fork // fail("fork: $!");
    exit build(@_) if $pid == 0;
    waitpid $pid, 0;
    my $status = status();
    system 'rm', '-rf', "$_[1]/bundle";
    return $status;
}

if (@ARGV > 3 && $ARGV[0] eq 'within') {
    my (undef, $folder, $mib, @command) = @ARGV;
    exit bounded($folder, $mib, 0, @command); # a registry may be slow
}
my ($layout, $out, $mib, $inside) = @ARGV;
fail('usage: container.pl LAYOUT OUT MAX_MIB') if !defined $mib || $mib !~ /^\d+\z/;
for my $name (qw(ID_BASE SOURCE_DATE_EPOCH UUID)) { fail("$name is not set") if !defined $ENV{$name} }
if ($inside) {
    exit build_and_clean($layout, $out, $mib);
} elsif ($> == 0) {
    chown OUTSIDE, OUTSIDE, $out or fail("chown $out: $!");
    exit in_namespace(sub { build_and_clean($layout, $out, $mib) });
}
exec 'unshare', '--map-root-user', '--map-auto', '--net', '--', $^X, $0, $layout, $out, $mib, 'inside'
    or fail("unshare: $!", 'apt install util-linux uidmap');
