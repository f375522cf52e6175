/* scheduler/options.c - see scheduler/options.h. */
#include "scheduler/options.h"

#include <string.h>

#include "base/id.h"

#define AT(field) offsetof(struct sched_options, field)

const struct cl_conf_row sched_conf_rows[] = {
    {"scheduler", "listen", CL_CONF_STRING, AT(listen), "unix:/run/cloche/api.sock", 0, 0, false,
     "unix socket for clients"},
    {"scheduler", "tcp", CL_CONF_STRING, AT(tcp), "", 0, 0, false, "HOST:PORT for clients as well"},
    {"scheduler", "tls-cert", CL_CONF_STRING, AT(tls_cert), "", 0, 0, false,
     "certificate chain of the TCP endpoint (PEM)"},
    {"scheduler", "tls-key", CL_CONF_STRING, AT(tls_key), "", 0, 0, false, "its private key (PEM)"},
    {"scheduler", "insecure-listen", CL_CONF_BOOL, AT(insecure_listen), "no", 0, 0, false,
     "allow plaintext off loopback: clients, metrics, Redis"},
    {"scheduler", "worker-listen", CL_CONF_STRING, AT(worker_listen),
     "unix:/run/cloche/worker.sock", 0, 0, false, "unix socket for workers of this host"},
    {"scheduler", "worker-uid", CL_CONF_U64, AT(worker_uid), "0", 0, 4294967294, false,
     "uid that workers on the unix socket must have (besides our own)"},
    {"scheduler", "worker-tcp", CL_CONF_STRING, AT(worker_tcp), "", 0, 0, false,
     "HOST:PORT for workers of other hosts (mTLS)"},
    {"scheduler", "worker-ca", CL_CONF_STRING, AT(worker_ca), "", 0, 0, false,
     "CA of the workers' certificates (PEM)"},
    {"scheduler", "worker-ca-key", CL_CONF_STRING, AT(worker_ca_key), "", 0, 0, false,
     "its private key; needed to enroll workers"},
    {"scheduler", "worker-cert", CL_CONF_STRING, AT(worker_cert), "", 0, 0, false,
     "certificate of the worker endpoint (PEM)"},
    {"scheduler", "worker-key", CL_CONF_STRING, AT(worker_key), "", 0, 0, false,
     "its private key (PEM)"},
    {"scheduler", "redis", CL_CONF_STRING, AT(redis), "unix:/run/cloche/redis.sock", 0, 0, false,
     "unix:/PATH or ADDRESS:PORT"},
    {"scheduler", "redis-password-file", CL_CONF_STRING, AT(redis_password_file), "", 0, 0, false,
     "file with the password"},
    {"scheduler", "durability", CL_CONF_STRING, AT(durability), "always", 0, 0, false,
     "least that Redis must promise: always, everysec or none"},
    {"scheduler", "audit-socket", CL_CONF_STRING, AT(audit_socket), "/run/cloche/audit.sock", 0, 0,
     false, "socket of cloche-audit"},
    {"scheduler", "audit-reader", CL_CONF_STRING, AT(audit_reader), "", 0, 0, false,
     "socket of cloche-audit-reader, as in /run/cloche/reader.sock; without it AuditService is not "
     "served"},
    {"scheduler", "pepper-file", CL_CONF_STRING, AT(pepper_file),
     "/var/lib/cloche/scheduler/pepper", 0, 0, false,
     "32 secret bytes that key digests are made with; created when missing"},
    {"scheduler", "bootstrap-key-file", CL_CONF_STRING, AT(bootstrap_key_file), "", 0, 0, false,
     "make tenant `local` and write an administrator's key here, unless the file is there"},
    {"scheduler", "token-issuer", CL_CONF_STRING, AT(token_issuer), "", 0, 0, false,
     "also take bearer tokens (JWT) whose `iss` is this"},
    {"scheduler", "token-audience", CL_CONF_STRING, AT(token_audience), "", 0, 0, false,
     "`aud` that a token must have: the name of this service at its issuer"},
    {"scheduler", "token-keys", CL_CONF_STRING, AT(token_keys), "", 0, 0, false,
     "the issuer's public keys (JWK set): a file, looked at every 5 s, or an https URL"},
    {"scheduler", "token-keys-ca", CL_CONF_STRING, AT(token_keys_ca), "", 0, 0, false,
     "CA of that URL's certificate (PEM); default: the system's"},
    {"scheduler", "token-tenant-claim", CL_CONF_STRING, AT(token_tenant_claim), "tenant", 0, 0,
     false, "claim that names the tenant"},
    {"scheduler", "token-scopes", CL_CONF_STRING, AT(token_scopes), "", 0, 0, false,
     "what a token's scopes mean here: THEIRS=OURS,..., as in sandbox:run=run"},
    {"scheduler", "token-skew", CL_CONF_DURATION, AT(token_skew), "30s", 0, 60 * CL_NS_PER_S, false,
     "how far the issuer's clock may be from ours"},
    {"scheduler", "lead-group", CL_CONF_STRING, AT(lead_group), "main", 0, 0, false,
     "of the schedulers of a group on one Redis one leads, the others stand by for it"},
    {"scheduler", "lead-ttl", CL_CONF_DURATION, AT(lead_ttl), "5s", 500 * CL_NS_PER_MS,
     60 * CL_NS_PER_S, false,
     "another takes the lead when the one who has it was silent for so long; with --renew-every "
     "it should stay below --self-kill by some seconds, or a change may end VMs"},
    {"scheduler", "lease-ttl", CL_CONF_DURATION, AT(lease_ttl), "30s", CL_NS_PER_S, 0, false,
     "life of a lease"},
    {"scheduler", "renew-every", CL_CONF_DURATION, AT(renew_every), "10s", CL_NS_PER_MS, 0, false,
     "how often workers renew"},
    {"scheduler", "self-kill", CL_CONF_DURATION, AT(self_kill), "20s", CL_NS_PER_MS, 0, false,
     "a VM ends this long after its last renewal"},
    {"scheduler", "queue-max", CL_CONF_U64, AT(queue_max), "100000", 1, 200000, true,
     "queued units of all tenants"},
    {"scheduler", "guest-events-burst", CL_CONF_U64, AT(guest_events_burst), "50000", 0, 100000000,
     true, "records at once of what a tenant's user code does, all its sandboxes together"},
    {"scheduler", "guest-events-rate", CL_CONF_U64, AT(guest_events_rate), "200", 1, 1000000, true,
     "records of it a second once the burst is used up; what is over is counted"},
    {"scheduler", "reflection", CL_CONF_BOOL, AT(reflection), "yes", 0, 0, false,
     "serve gRPC reflection"},
    {"scheduler", "seccomp", CL_CONF_BOOL, AT(seccomp), "yes", 0, 0, false, "confine the process"},
    {"scheduler", "metrics", CL_CONF_STRING, AT(metrics), "", 0, 0, false,
     "HOST:PORT of /metrics (loopback)"},
    {"scheduler", "log-level", CL_CONF_STRING, AT(log_level), "info", 0, 0, true,
     "debug, info, warn or error"},
};
const size_t sched_conf_count = CL_COUNT(sched_conf_rows);

int sched_options_check(const struct sched_options *o, struct cl_err *err)
{
    if (!(o->renew_every < o->self_kill && o->self_kill < o->lease_ttl))
        return cl_fail(
            err, CL_E_INVALID, 0,
            "renew-every < self-kill < lease-ttl must hold, or a VM could outlive its lease");
    if (!cl_name_is_valid(o->lead_group))
        return cl_fail(err, CL_E_INVALID, 0,
                       "--lead-group '%.64s': want a name of a-z, 0-9 and '-', at most 63 long",
                       o->lead_group);
    if (o->tcp[0] && !o->tls_cert[0] && !cl_is_loopback(o->tcp) && !o->insecure_listen)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%s' is not loopback: give --tls-cert and --tls-key, or --insecure-listen",
                       o->tcp);
    if (o->metrics[0] && !cl_is_loopback(o->metrics) && !o->insecure_listen)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "metrics on '%s' are not loopback: put a TLS proxy before them, or --insecure-listen",
            o->metrics);
    if (strncmp(o->redis, "unix:", 5) != 0 && !cl_is_loopback(o->redis) && !o->insecure_listen)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "Redis at '%s' is not on this host: tunnel it (TLS, WireGuard), or --insecure-listen",
            o->redis);
    if (o->token_issuer[0] && !(o->token_audience[0] && o->token_keys[0] && o->token_scopes[0]))
        return cl_fail(err, CL_E_INVALID, 0,
                       "--token-issuer needs --token-audience, --token-keys and --token-scopes");
    if (o->worker_tcp[0] && !(o->worker_ca[0] && o->worker_cert[0] && o->worker_key[0]))
        return cl_fail(err, CL_E_INVALID, 0,
                       "--worker-tcp needs --worker-ca, --worker-cert and --worker-key");
    return 0;
}
