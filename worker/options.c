/* worker/options.c - see worker/options.h. */
#include "worker/options.h"

#define AT(field) offsetof(struct worker_options, field)

const struct cl_conf_row worker_conf_rows[] = {
    {"worker", "scheduler", CL_CONF_STRING, AT(scheduler), "unix:/run/cloche/worker.sock", 0, 0,
     false,
     "the scheduler's worker listener: unix:/PATH, or HOST:PORT with TLS; all of several that "
     "stand by for one another, as in a:7444,b:7444"},
    {"worker", "tls-ca", CL_CONF_STRING, AT(tls_ca), "", 0, 0, false,
     "CA certificate of the fleet (PEM)"},
    {"worker", "tls-cert", CL_CONF_STRING, AT(tls_cert), "", 0, 0, false,
     "this worker's certificate (PEM)"},
    {"worker", "tls-key", CL_CONF_STRING, AT(tls_key), "", 0, 0, false,
     "its private key (PEM, mode 0600)"},
    {"worker", "state-dir", CL_CONF_STRING, AT(state_dir), "/var/lib/cloche/worker", 0, 0, false,
     "id, VM state files, output spools, and what paused sandboxes left, encrypted"},
    {"worker", "paused-keys", CL_CONF_STRING, AT(paused_keys), "", 0, 0, false,
     "folder for the keys of what paused sandboxes left: in memory (tmpfs), and they outlive this "
     "worker; on a disk, and they outlive the host's start; none: they end with this worker; "
     "default: /run/cloche-paused (root), $XDG_RUNTIME_DIR/cloche-paused, or none"},
    {"worker", "pause-on-stop", CL_CONF_BOOL, AT(pause_on_stop), "yes", 0, 0, true,
     "when this worker is stopped, pause the sandboxes that run, so that they go on with the next "
     "one; without paused-keys, or with no, they end"},
    {"worker", "older-monitors", CL_CONF_BOOL, AT(older_monitors), "yes", 0, 0, false,
     "let what rests go on under the build of cloche-vmm that paused it, of which a copy is kept; "
     "no: it ends, as after an upgrade that closes a hole in the monitor it should"},
    {"worker", "instance", CL_CONF_STRING, AT(instance), "default", 0, 0, false,
     "name in cgroup paths"},
    {"worker", "template-dir", CL_CONF_STRING, AT(template_dir), "/var/lib/cloche/templates", 0, 0,
     false, "built templates"},
    {"worker", "template-key", CL_CONF_STRING, AT(template_key),
     "/var/lib/cloche/templates/signing.pub", 0, 0, false,
     "public keys, one of which signs each manifest (PEM)"},
    {"worker", "snapshot-cache", CL_CONF_STRING, AT(snapshot_cache), "", 0, 0, false,
     "folder for the snapshots of templates, so that the next worker, until the host's next start, "
     "need not boot them; none: it boots them; default: STATE-DIR/snapshots"},
    {"worker", "templates", CL_CONF_STRING, AT(templates), "base,python,code,images", 0, 0, false,
     "templates to keep warm, once they are built, separated by commas; \"images\": each one that "
     "is made of a container image or was pulled"},
    {"worker", "warm", CL_CONF_U64, AT(warm), "2", 0, 256, true,
     "VMs that wait warm, per template"},
    {"worker", "driver", CL_CONF_STRING, AT(driver), "auto", 0, 0, false,
     "auto; or of kvm, kvm/xenpv, kvm/xenpv-shared, qemu/kvm, qemu/tcg the preferred first, "
     "with commas: a unit gets the first that its tenant accepts and that boots its template"},
    {"worker", "qemu", CL_CONF_STRING, AT(qemu), "/usr/bin/qemu-system-x86_64", 0, 0, false,
     "the QEMU binary"},
    {"worker", "guard", CL_CONF_STRING, AT(guard), "", 0, 0, false,
     "cloche-guard; default: beside this program"},
    {"worker", "vmm", CL_CONF_STRING, AT(vmm), "", 0, 0, false,
     "cloche-vmm, for the driver kvm; default: beside this program"},
    {"worker", "slots", CL_CONF_U64, AT(slots), "0", 0, 4096, false, "VMs at once; 0 = by memory"},
    {"worker", "vcpus", CL_CONF_U64, AT(vcpus), "0", 0, 65536, false,
     "vCPUs to hand out; 0 = 8 for each CPU"},
    {"worker", "memory", CL_CONF_BYTES, AT(memory), "0", 0, 0, false,
     "guest memory to hand out; 0 = 80% of RAM"},
    {"worker", "vm-uid-base", CL_CONF_U64, AT(vm_uid_base), "1879048192", 1000, 4294901760, false,
     "first uid of VMs (root only)"},
    {"worker", "vm-gid", CL_CONF_U64, AT(vm_gid), "65534", 1, 4294967294, false,
     "gid of VMs (root only)"},
    {"worker", "disk-reserve", CL_CONF_BYTES, AT(disk_reserve), "1GiB", 0, 0, true,
     "refuse work while the state folder has less than this free"},
    {"worker", "output-keep", CL_CONF_DURATION, AT(output_keep), "1h", 0, 0, false,
     "how long output lives after the end"},
    {"worker", "clock-every", CL_CONF_DURATION, AT(clock_every), "30s", 0, 0, false,
     "how often a sandbox's wall clock is compared with the host's, besides when that is set; "
     "0s = never"},
    {"worker", "guest-events", CL_CONF_BOOL, AT(guest_events), "yes", 0, 0, false,
     "record in the audit log what user code does in its guest, as the guest's kernel sees it"},
    {"worker", "guest-events-burst", CL_CONF_U64, AT(guest_events_burst), "2000", 0, 1000000, false,
     "records of a sandbox at once, of files opened for writing and of all else; what is over is "
     "counted"},
    {"worker", "guest-events-rate", CL_CONF_U64, AT(guest_events_rate), "50", 1, 1000000, false,
     "records a second once the burst is used up"},
    {"worker", "network", CL_CONF_BOOL, AT(network), "yes", 0, 0, false,
     "VMs can be given network, by cloche-net, to what their grant names"},
    {"worker", "net", CL_CONF_STRING, AT(net), "", 0, 0, false,
     "cloche-net; default: beside this program"},
    {"worker", "net-private", CL_CONF_STRING, AT(net_private), "", 0, 0, false,
     "addresses that the internet does not have and that grants may name, as 10.1.0.0/16, with "
     "commas; this host's own never are"},
    {"worker", "net-dns", CL_CONF_STRING, AT(net_dns), "", 0, 0, false,
     "resolvers for the names of grants, with commas; default: those of /etc/resolv.conf"},
    {"worker", "metrics", CL_CONF_STRING, AT(metrics), "", 0, 0, false,
     "HOST:PORT of /metrics (loopback)"},
    {"worker", "insecure-listen", CL_CONF_BOOL, AT(insecure_listen), "no", 0, 0, false,
     "allow metrics in plaintext off loopback"},
    {"worker", "log-level", CL_CONF_STRING, AT(log_level), "info", 0, 0, true,
     "debug, info, warn or error"},
};
const size_t worker_conf_count = CL_COUNT(worker_conf_rows);
