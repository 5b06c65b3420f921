//! Failures of commands outside the API.

/// A row of [`COMMANDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRow {
    /// The code.
    pub code: CommandCode,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// When a command fails with this code.
    pub doc: &'static str,
}

codes! {
/// Why a command failed, if no other table has the code: the command line, files and programs of
/// this machine, the connection to the control plane, the wait.
CommandCode, CommandRow, COMMANDS;
AddressInUse "address_in_use" "The address is already in use" {
    doc: "Another process listens on the address that the server was given",
}
AddressUnusable "address_unusable" "Cannot listen on the address" {
    doc: "This machine does not have the address, or this user is not allowed to listen on it",
}
AdminTokenUnreadable "admin_token_unreadable" "Cannot read the admin token file" {
    doc: "`gpuaas serve` keeps its token in a file; the file is damaged or belongs to another user",
}
AdviceCircular "advice_circular" "The advice for a fault does not fix it" {
    doc: "`gpuaas bench repair`: the repair did not restore the host, and neither did the steps that it advised",
}
AdvertiseLoopback "advertise_loopback" "Nodes could not reach this control plane" {
    doc: "The address for nodes works only on this host, and a MAAS region is on another host",
}
AdvertiseMissing "advertise_missing" "No control plane address is set for nodes" {
    doc: "`--node-listen` listens on all addresses, and `--advertise` is not set",
}
AdvertiseNotHttps "advertise_not_https" "The control plane URL for nodes must use https" {
    doc: "Nodes connect over TLS, and the URL of `--advertise` has another scheme",
}
AgentMissing "agent_missing" "The node agent's executable is missing" {
    doc: "The executable is neither next to this program nor at the path of `--agent-binary`",
}
AgentNotReady "agent_not_ready" "The agent could not be measured" {
    doc: "`gpuaas bench agent` started an agent that did not enroll",
}
AgentUnreadable "agent_unreadable" "Cannot store the node agent" {
    doc: "The agent executable for nodes cannot be read, or the data folder cannot be written",
}
AnswerUnprintable "answer_unprintable" "Cannot format the output" {
    doc: "The output has no text form; this is a bug in gpuaas",
}
ApiNotServed "api_not_served" "Cannot serve the admin API" {
    doc: "The operating system closed the listener of the admin API",
}
ApprovalNotCarriedOut "approval_not_carried_out" "The approved request failed" {
    doc: "The control plane refused the request when it ran it after the approval; the detail has the reason",
}
ArchiveUnwritable "archive_unwritable" "Cannot save the archive" {
    doc: "The task result was fetched, but the file or folder cannot be written",
}
AttackFailed "attack_failed" "The attack benchmark could not run" {
    doc: "`gpuaas bench attack` could not start the control plane or the attacker, or requests failed before the attack",
}
AuditExportFailed "audit_export_failed" "Cannot export or verify the audit log" {
    doc: "The output of `gpuaas audit export` cannot be opened or written, or the file of `gpuaas audit verify --file` cannot be read",
}
AuditTampered "audit_tampered" "The audit log was changed after it was written" {
    doc: "`gpuaas audit verify` found a row that was changed, removed or inserted",
}
BackupDamaged "backup_damaged" "Cannot use the backup" {
    doc: "The folder given to `gpuaas restore BACKUP --reason TEXT` is not a backup, lacks a file, or has a file that was changed",
}
BackupFailed "backup_failed" "Cannot create the backup" {
    doc: "`gpuaas backup --to DIR` cannot read the database or its keys, or cannot write the backup folder",
}
BackupKeyMissing "backup_key_missing" "The key of the backup is missing" {
    doc: "The keys in a backup are sealed: `gpuaas restore BACKUP --reason TEXT` needs the key file that the backup was made with (`--key-file`), or the master key itself",
}
BatchIncomplete "batch_incomplete" "Not every machine of the batch became active" {
    doc: "The batch ended, but some of its runs did not reach their goal",
}
BenchmarkUnusable "benchmark_unusable" "The benchmark cannot run here" {
    doc: "The benchmark cannot use a program or file that it needs; the detail names it",
}
BundleBroken "bundle_broken" "A built-in bundle is broken" {
    doc: "A bundle in the executable cannot be read; this is a build defect",
}
BundleInputInvalid "bundle_input_invalid" "Invalid bundle input" {
    doc: "The value does not match the input's definition in the bundle's manifest",
}
BundleInvalid "bundle_invalid" "Invalid bundle" {
    doc: "The folder breaks the rules for bundles; the error lists each violation",
}
BundleNameInvalid "bundle_name_invalid" "Invalid bundle name" {
    doc: "The name of a new bundle may contain only lower-case letters, digits and hyphens",
}
BundlesNotFound "bundles_not_found" "No bundles to test" {
    doc: "`gpuaas bench gate` needs the folder with the bundles",
}
CaFileUnusable "ca_file_unusable" "Cannot read the trusted certificates" {
    doc: "The file of `--server-ca-file`, or of the context, is missing or contains no certificate",
}
CaseNotMade "case_not_made" "A case did not park its run" {
    doc: "`gpuaas bench mend`: the case's setup did not park the run, or was rejected",
}
CaseStuck "case_stuck" "A run of a case is stuck" {
    doc: "`gpuaas bench mend`: the run neither ended nor parked within the time limit of its case",
}
ConfigFileInvalid "config_file_invalid" "Invalid configuration file" {
    doc: "The file of `gpuaas serve --config` is not a mapping of options, or sets one of them twice",
}
ContextFileUnusable "context_file_unusable" "Cannot use the context file" {
    doc: "This user cannot read or write the context file, or the file is damaged",
}
ContextNotFound "context_not_found" "Context not found" {
    doc: "`--context`, `GPUAAS_CONTEXT` or the command names a context that was not added",
}
ControlPlaneNotStarted "control_plane_not_started" "Cannot start the lab's control plane" {
    doc: "The lab started `gpuaas serve`, but it exited before it was ready",
}
DataDiskFull "data_disk_full" "The disk of the data folder is full" {
    doc: "`gpuaas serve` has no space left to write to its data folder",
}
DatabaseInsecure "database_insecure" "The database connection is not secure" {
    doc: "PostgreSQL is on another host, its certificate is not verified, and no option allows that",
}
DataInUse "data_in_use" "Another control plane uses this database" {
    doc: "Only one process can use the embedded database; PostgreSQL allows several",
}
CommandLineInvalid "command_line_invalid" "Invalid command line" {
    doc: "A command, option or value is unknown, or a required one is missing",
}
DataUnwritable "data_unwritable" "Cannot use the data folder" {
    doc: "This user cannot create the data folder or write to it",
}
DatabaseNotEmbedded "database_not_embedded" "The database is on a PostgreSQL server" {
    doc: "`gpuaas backup --to DIR` backs up only the embedded database; PostgreSQL has its own backup program",
}
DatabaseUnwritable "database_unwritable" "Cannot lock the embedded database" {
    doc: "The lock file of the embedded database cannot be opened",
}
ExecutableUnknown "executable_unknown" "Cannot find the running executable" {
    doc: "The operating system does not report the path of the running executable",
}
EventsLost "events_lost" "Events were lost or duplicated" {
    doc: "`gpuaas bench failover` found a difference between the event stream and the timelines",
}
FaultsFound "faults_found" "The control plane has faults" {
    doc: "`gpuaas doctor` found faults; its table shows how to fix each one",
}
FaultFileUnusable "fault_file_unusable" "Cannot use the fault file" {
    doc: "The fault file for the simulated region cannot be read, or names something that does not exist",
}
FileUnreadable "file_unreadable" "Cannot read or write a file" {
    doc: "The file is missing, already exists, or belongs to another user",
}
FleetNotChanged "fleet_not_changed" "Cannot change the fleet" {
    doc: "`gpuaas bench people` could not carry out an operator's action",
}
GateNotExact "gate_not_exact" "A gate gave a wrong result" {
    doc: "`gpuaas bench gate`: a gate missed a fault, or refused a healthy host",
}
HostUnreachable "host_unreachable" "Cannot reach the host over SSH" {
    doc: "ssh exited before it ran anything on the host",
}
HostsDirUnwritable "hosts_dir_unwritable" "Cannot create the hosts' folder" {
    doc: "This user cannot create the folder in which simulated hosts keep their files",
}
HostsNotLocal "hosts_not_local" "Simulated hosts can run as processes only on a loopback address" {
    doc: "If others could reach the simulated region, everything they deploy would run as processes on this machine",
}
HostsUnguarded "hosts_unguarded" "Cannot start bash" {
    doc: "Stopping the processes of simulated hosts requires bash, which is not available",
}
HttpUnavailable "http_unavailable" "Cannot create an HTTP client" {
    doc: "The TLS library or the system's resolver rejects its configuration",
}
ImageBaseUntrusted "image_base_untrusted" "The base image does not match its signed checksums" {
    doc: "The digest of a cloud image differs from the checksum list, or no key in the recipe's keyring signed the list",
}
ImageBootTestFailed "image_boot_test_failed" "The image was not booted" {
    doc: "A program that unpacks the archive or creates the machine's disk failed or timed out",
}
ImageBootTestImpossibleHere "image_boot_test_impossible_here" "This host cannot boot images" {
    doc: "A program that the boot test needs is not installed, or the caller is not root",
}
ImageBuildFailed "image_build_failed" "A build step failed" {
    doc: "A program that builds the image failed or timed out",
}
ImageBuildHostUnfit "image_build_host_unfit" "Cannot use the build host" {
    doc: "The build host is unreachable over SSH, has another version of gpuaas, or returned a different archive than it built",
}
ImageBuildImpossibleHere "image_build_impossible_here" "This host cannot build images" {
    doc: "A program that builds need is not installed, or the caller is not root",
}
ImageBuildRunning "image_build_running" "Another build is running" {
    doc: "Another process is building with the same layer folder",
}
ImageChanged "image_changed" "The archive changed during the check" {
    doc: "A statement or verdict covers the bytes that were checked, and the file has changed since",
}
ImageEntryUnfit "image_entry_unfit" "The tree has an entry that a tar archive cannot store" {
    doc: "A name or an attribute in the tree cannot be represented in a tar archive",
}
ImageFaulty "image_faulty" "The image has faults" {
    doc: "`gpuaas image lint FILE` found problems that would make MAAS, curtin or the first boot fail; each finding names its fix",
}
ImageNotBootable "image_not_bootable" "The image failed the boot test" {
    doc: "`gpuaas image boot-test FILE`: a machine or container did not come up, or lacks something that a host needs; each problem shows what was observed",
}
ImageOverrideInvalid "image_override_invalid" "Invalid image override" {
    doc: "A value does not fit its override, or the table in docs/reference/image-overrides.md does not list a name with the prefix `GPUAAS_MAAS_HOST_IMAGE_`",
}
ImagePackageMissing "image_package_missing" "A required package is not available" {
    doc: "The package archive has no package with that name",
}
ImageRecipeInvalid "image_recipe_invalid" "Invalid recipe" {
    doc: "The recipe has an unknown field or an invalid value, or leaves nothing to do",
}
ImageRepositoryUntrusted "image_repository_untrusted" "A package archive is not signed by the keys in the recipe" {
    doc: "An additional package archive serves keys with fingerprints that the recipe does not list, or none of its keys signed the archive's index",
}
ImageSourceUnreachable "image_source_unreachable" "Cannot fetch the index of the package archive" {
    doc: "The signed index cannot be fetched, or the response is not an index",
}
ImageTreeChanged "image_tree_changed" "The tree changed while it was being packed" {
    doc: "A file grew or shrank; something is running in the tree",
}
ImageTreeMounted "image_tree_mounted" "Something is mounted in the tree" {
    doc: "A folder in the tree is on another file system, such as /proc in a chroot",
}
ImageTreeUnreadable "image_tree_unreadable" "Cannot read the tree" {
    doc: "The folder does not exist, or a file in it belongs to another user or cannot be read",
}
ImageUnreadable "image_unreadable" "Cannot read the image" {
    doc: "The file does not exist, or the disk cannot read it",
}
ImageUnwritable "image_unwritable" "Cannot write the image" {
    doc: "The folder does not exist or belongs to another user, or the disk is full",
}
ImageUploadBaseMissing "image_upload_base_missing" "The region lacks an image that the upload needs" {
    doc: "MAAS needs two synced images for a custom image: the commissioning image, which deploys it, and its base image; one of them is missing",
}
ImageUploadClock "image_upload_clock" "The clocks of this host and the region differ" {
    doc: "The region refuses requests that were signed more than 300 seconds before they arrive",
}
ImageUploadDamaged "image_upload_damaged" "The image was damaged during the upload" {
    doc: "The region's copy differs from the file: foreign bytes, a duplicated piece or another digest. The copy stays incomplete, so MAAS deploys it to no machine",
}
ImageUploadFileChanged "image_upload_file_changed" "The file changed after its upload started" {
    doc: "An upload of this file was started, and the content has changed since",
}
ImageUploadNameTaken "image_upload_name_taken" "The region already has an image with this name" {
    doc: "Registering a name again deletes its files at once, even while machines deploy the image, so gpuaas never does that",
}
ImageUploadNoAnswer "image_upload_no_answer" "The region does not answer" {
    doc: "The region was unreachable for longer than an upload waits; it keeps the part of the image that it has received",
}
ImageUploadNotCopied "image_upload_not_copied" "Not all region controllers have the image" {
    doc: "One region controller has the whole image, but others did not copy it within an hour; the image stays incomplete until they do",
}
ImageUploadNotPermitted "image_upload_not_permitted" "The API key is not an administrator's" {
    doc: "Only an administrator of the region can upload images",
}
ImageUploadRefused "image_upload_refused" "MAAS refused the upload" {
    doc: "The region refused a request, or cannot be called with the options on the command line",
}
ImageUploadRunning "image_upload_running" "The file is already being uploaded" {
    doc: "Another process is uploading this file to this site; two uploads would mix their pieces",
}
ImageUploadStateUnusable "image_upload_state_unusable" "Cannot use the upload state" {
    doc: "The progress of an upload is stored next to the file; it cannot be read or written, or belongs to another region",
}
InvariantBroken "invariant_broken" "An invariant was violated" {
    doc: "`gpuaas bench chaos` found a lost, duplicated or stuck machine",
}
LabFolderUnusable "lab_folder_unusable" "Cannot use the lab folder" {
    doc: "A file of the lab cannot be read or written",
}
LabInterrupted "lab_interrupted" "The lab was interrupted" {
    doc: "Run the same command again within ten minutes to continue where the lab stopped",
}
LabMissing "lab_missing" "The lab is not installed" {
    doc: "`gpuaas lab`, `gpuaas maas-sim` and the benchmarks need the executable gpuaas-lab in the same folder as gpuaas",
}
LabRunning "lab_running" "A lab is already running in this folder" {
    doc: "Only one lab at a time can use the folder",
}
LabUnfinished "lab_unfinished" "The folder contains another unfinished lab" {
    doc: "The folder holds the machines of a lab with other options",
}
LogFilterInvalid "log_filter_invalid" "Invalid log filter" {
    doc: "`--log` takes levels and targets, such as `info` or `gpuaas_engine=debug`",
}
LoopEnded "loop_ended" "A background loop of the control plane ended" {
    doc: "A part of `gpuaas serve` that must always run ended, so the process ended too",
}
MachineNotListed "machine_not_listed" "The file does not list the host" {
    doc: "The file of `--machines` does not list a host that is on the command line",
}
ManifestUnreadable "manifest_unreadable" "Cannot read the manifest" {
    doc: "The batch manifest is not valid YAML, or has unknown fields",
}
MasterKeyMissing "master_key_missing" "The master key of the database is missing" {
    doc: "The database exists, but the key file that seals its secrets does not",
}
MutationImpossible "mutation_impossible" "Cannot create a fault on the test host" {
    doc: "`gpuaas bench gate` could not create a fault that it has to test",
}
NetworkInvalid "network_invalid" "Invalid network" {
    doc: "The value is not an address with a prefix length",
}
NoFreePort "no_free_port" "No free port to listen on" {
    doc: "The operating system offered no free port on the loopback address",
}
NatsUrlInvalid "nats_url_invalid" "Invalid NATS URL" {
    doc: "`--nats` of `gpuaas serve` takes a nats:// or tls:// URL",
}
NodeListenerUnusable "node_listener_unusable" "Cannot open the listener for nodes" {
    doc: "Its certificate or its socket cannot be used",
}
NodesNotActive "nodes_not_active" "Not every node became active" {
    doc: "A lab or benchmark ended, and some of its nodes are not active",
}
NotARequest "not_a_request" "The command does not send a request to a control plane" {
    doc: "A command that should be sent as a request has no request; this is a bug in gpuaas",
}
NotConfirmed "not_confirmed" "Not confirmed; nothing was done" {
    doc: "A destructive command needs `--yes` or a yes at the prompt",
}
OneHostWanted "one_host_wanted" "A BMC or MAC address fits only one host" {
    doc: "The command names several hosts and a value that only one host can have",
}
OperatorListenerUnusable "operator_listener_unusable" "Cannot open the listener for operators" {
    doc: "Its certificate cannot be used for TLS",
}
PresetNotFound "preset_not_found" "Preset not found" {
    doc: "`gpuaas profile presets` lists the available presets",
}
ProviderUnreachable "provider_unreachable" "Cannot reach the identity provider" {
    doc: "It does not answer, or does not answer like an OpenID Connect provider with a device flow",
}
RealHostNeedsRoot "real_host_needs_root" "Real hosts need root" {
    doc: "A host with its own systemd needs namespaces and mounts, which require root",
}
RealHostNotMade "real_host_not_made" "Cannot create a real host" {
    doc: "The folder of the host cannot be written",
}
RealHostRootfsMissing "real_host_rootfs_missing" "The root filesystem for real hosts is missing" {
    doc: "The root filesystem for real hosts has not been built",
}
RealHostToolMissing "real_host_tool_missing" "A program for real hosts is missing" {
    doc: "A program that creates real hosts is not installed",
}
RegistryArtifactRefused "registry_artifact_refused" "The artifact in the registry is not a bundle" {
    doc: "The reference does not point to an artifact with exactly one bundle archive",
}
RegistryLoginMissing "registry_login_missing" "No credentials for the registry" {
    doc: "The registry requires credentials, and Docker's configuration has none for it",
}
RegistryLoginRefused "registry_login_refused" "The registry rejected the credentials" {
    doc: "The name or password is wrong, or has no access to the repository",
}
RegistryLoginUnknown "registry_login_unknown" "Unsupported registry authentication" {
    doc: "The registry asks for neither Basic nor Bearer authentication",
}
RegistryLoginUnsafe "registry_login_unsafe" "Others could read the credentials" {
    doc: "The registry, or the server to which it sends logins, has no TLS or belongs to someone else",
}
RegistryLoginUnusable "registry_login_unusable" "Cannot use the registry credentials" {
    doc: "Docker's configuration keeps them in a place that this program does not read",
}
RegistryReferenceMissing "registry_reference_missing" "The reference has no version" {
    doc: "The reference has neither a tag nor a digest",
}
RegistryRefused "registry_refused" "The registry returned an error" {
    doc: "The registry answered the request with an error",
}
RegistrySilent "registry_silent" "No answer from the registry" {
    doc: "The registry is unreachable, or did not answer in time",
}
RegistryUrlInvalid "registry_url_invalid" "Invalid registry URL" {
    doc: "The reference does not start with a host name",
}
RunEnded "run_ended" "The run ended without reaching its goal" {
    doc: "The command waited for a run that ended without reaching its goal and is not parked",
}
RuntimeUnavailable "runtime_unavailable" "Cannot start threads" {
    doc: "The operating system allows this user no more threads",
}
ScenarioNeedsHosts "scenario_needs_hosts" "Too many machines for the scenario" {
    doc: "Each machine of the scenario is a host with its own processes",
}
ScenarioNeedsNodes "scenario_needs_nodes" "Too few machines for the scenario" {
    doc: "`--nodes` is below the minimum of the scenario",
}
ScenarioNotMet "scenario_not_met" "Not every node reached the expected state" {
    doc: "The lab ended, and some nodes are not in the state that the table of scenarios expects",
}
ScenarioUnset "scenario_unset" "Cannot set up the scenario" {
    doc: "The lab could not create the conditions that the scenario needs",
}
SchemaContracted "schema_contracted" "The database schema is too new for this version" {
    doc: "A later version removed parts of the schema that this version uses; it did so when no control plane of this version was running",
}
SecretMalformed "secret_malformed" "The secret has the wrong format" {
    doc: "The input takes a password hash, and the value is not one",
}
SecretMissing "secret_missing" "The secret file is empty" {
    doc: "The file of a secret contains no value",
}
ServerCertificateUnusable "server_certificate_unusable" "Cannot use a TLS file of the listener" {
    doc: "The certificate, key or trust anchor for nodes cannot be read, or they do not match",
}
ServerSilent "server_silent" "No answer from the control plane; the effect of the request is unknown" {
    doc: "The request was sent, but the connection closed or the request timed out before the answer",
}
ServerUnreachable "server_unreachable" "Cannot reach the control plane" {
    doc: "Nothing accepts connections at the URL",
}
ServerUntrusted "server_untrusted" "The control plane's certificate is not trusted" {
    doc: "None of the certificate authorities that this command trusts signed it, or it is for another name",
}
ServerUrlInvalid "server_url_invalid" "Invalid control plane URL" {
    doc: "`--server` takes an http:// or https:// URL",
}
SignInEnded "sign_in_ended" "The sign-in has expired or was revoked" {
    doc: "The identity provider issues no more tokens for this sign-in",
}
SignInFailed "sign_in_failed" "Sign-in failed" {
    doc: "The identity provider refused the request of `gpuaas login`, nobody entered the code in time, or the user declined",
}
SignInNotOffered "sign_in_not_offered" "The control plane offers no sign-in" {
    doc: "It was started without `--oidc-client-id`, so `gpuaas login` has no identity provider to contact",
}
SignalsUnavailable "signals_unavailable" "Cannot handle signals" {
    doc: "The operating system does not let this process handle SIGINT and SIGTERM",
}
SigningKeyUnusable "signing_key_unusable" "Cannot use the key that signs bundles" {
    doc: "The key in the database is not an Ed25519 key",
}
SimulationEnded "simulation_ended" "A simulation crashed" {
    doc: "The simulation thread panicked",
}
SimulationNotMade "simulation_not_made" "Cannot create the simulation" {
    doc: "The store or the region of the simulation rejected its initial state",
}
SimulatorNotStarted "simulator_not_started" "Cannot start the simulated region" {
    doc: "The process of the simulated region exited before it was ready",
}
SimulatorSilent "simulator_silent" "No answer from the simulated region" {
    doc: "The control interface of the simulated region did not answer",
}
SocketActivationInvalid "socket_activation_invalid" "Cannot use the sockets that systemd passes" {
    doc: "Each must be a listening TCP socket named `operators` or `nodes` (systemd.socket(5), `FileDescriptorName=`)",
}
SshMissing "ssh_missing" "Cannot run ssh" {
    doc: "The program ssh is not installed, or cannot be started",
}
StandInsNotLocal "stand_ins_not_local" "Stand-ins need a loopback address" {
    doc: "Simulated hosts connect to the control plane without TLS, which is allowed only on loopback addresses",
}
StoreMoved "store_moved" "This database was migrated to PostgreSQL" {
    doc: "`gpuaas migrate-store --from DIR --to URL` copied it to PostgreSQL; two control planes with the same history would change the same machines",
}
TokenFileUnwritable "token_file_unwritable" "Cannot create the token file" {
    doc: "A token is shown only once, so the file is created first; no request was sent to the control plane",
}
NothingToReset "nothing_to_reset" "No control plane data in this folder" {
    doc: "The database or the master key is not at the expected path: this host or folder is not the control plane's; nothing was created",
}
VaultUnusable "vault_unusable" "Cannot read the master key from Vault" {
    doc: "The Vault that holds the master key does not answer, is sealed, refuses the role, or has no such key",
}
StdoutUnwritable "stdout_unwritable" "Cannot write the output" {
    doc: "Standard output is closed or its disk is full",
}
StrayDeployments "stray_deployments" "MAAS has deployments that belong to no node" {
    doc: "A lab or benchmark left machines that were deployed twice, or deployed without a node",
}
SudoRefused "sudo_refused" "The user cannot become root" {
    doc: "sudo on the host asks for a password, or does not know the user",
}
TelemetryNotConverged "telemetry_not_converged" "The telemetry edge was not set up" {
    doc: "A step on the host failed; the output names it",
}
TestHostUnavailable "test_host_unavailable" "Cannot create a test host" {
    doc: "`gpuaas bench gate` or `bench topology` cannot write the files of its host",
}
TokenMissing "token_missing" "No admin token" {
    doc: "None of `--token-file`, `GPUAAS_TOKEN` and the default file contains a token",
}
TokenUnreadable "token_unreadable" "Cannot read the admin token" {
    doc: "The token file is missing, or belongs to another user",
}
TookTooLong "took_too_long" "The command on the host timed out" {
    doc: "A command over SSH did not finish in time",
}
ToolsMissing "tools_missing" "A required program is missing" {
    doc: "`gpuaas bench gate` needs programs that are not installed",
}
ClaimsNotExact "claims_not_exact" "The claims benchmark found errors" {
    doc: "`gpuaas bench claims`: a slot was claimed twice, a set is not a partition or is split over NUMA nodes, or a device leaked",
}
ReplicasWithoutServer "replicas_without_server" "Several replicas need a PostgreSQL server" {
    doc: "`gpuaas bench claims` has `--replicas` or `--kill-every` but no `--database`; only one process can use a database file",
}
SlicesNotClean "slices_not_clean" "The slices benchmark found errors" {
    doc: "`gpuaas bench slices`: a slot was freed with a tenant's data, a drive's false report was trusted, or a domain was left behind",
}
TopologyNotExact "topology_not_exact" "The topology benchmark found errors" {
    doc: "`gpuaas bench topology`: a fault had a wrong code or none, a healthy host was reported as faulty, or a device was in two slots",
}
TransferDiffers "transfer_differs" "The copied data differs from the source" {
    doc: "`gpuaas migrate-store --from DIR --to URL` compares rows and digests of each table before it commits",
}
TransferSourceUnready "transfer_source_unready" "Cannot migrate the source database" {
    doc: "The database in the folder is missing or damaged, or has the tables of another version",
}
TransferTargetUsed "transfer_target_used" "The target database is not empty" {
    doc: "`gpuaas migrate-store --from DIR --to URL` needs an empty target database; this one has rows, or the tables of another version",
}
UnexpectedAnswer "unexpected_answer" "The response is not from a control plane" {
    doc: "Another service answers at the URL, or the control plane has another version",
}
UnknownScenario "unknown_scenario" "Unknown scenario" {
    doc: "The help of the lab lists the scenarios",
}
UsageUnreadable "usage_unreadable" "Cannot read the CPU time and memory use of a process" {
    doc: "`/proc` does not provide what the measurement needs",
}
WaitInterrupted "wait_interrupted" "The wait was interrupted" {
    doc: "The command was interrupted while it waited; the work continues",
}
WaitTimedOut "wait_timed_out" "Not every run finished in time" {
    doc: "`--wait` timed out; the work continues",
}
}
