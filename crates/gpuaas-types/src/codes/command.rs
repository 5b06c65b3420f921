//! What stops a command on this side of the API.

/// A row of [`COMMANDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRow {
    /// The code.
    pub code: CommandCode,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// When a command ends so.
    pub doc: &'static str,
}

codes! {
/// Why a command ended without what was asked, where no other table has the code: the command
/// line, files and programs of this machine, the way to the control plane, the waiting.
CommandCode, CommandRow, COMMANDS;
AddressInUse "address_in_use" "Another process listens there" {
    doc: "The address that a server was told to listen on is taken",
}
AddressUnusable "address_unusable" "The address cannot be listened on" {
    doc: "The address is none of this machine's, or this user may not listen on it",
}
AdminTokenUnreadable "admin_token_unreadable" "The file of the admin token cannot be read" {
    doc: "`gpuaas serve` keeps its token in a file; another user owns it, or it is damaged",
}
AdviceCircular "advice_circular" "The advice for a lost effect leads nowhere" {
    doc: "`gpuaas bench repair`: a repair did not restore the host, and nothing that was said did",
}
AdvertiseLoopback "advertise_loopback" "Nodes could not reach this control plane" {
    doc: "Nodes would be told an address that only this host can reach, and a region is elsewhere",
}
AdvertiseMissing "advertise_missing" "Nodes have to be told an address of this control plane" {
    doc: "`--node-listen` names all addresses, and `--advertise` none",
}
AdvertiseNotHttps "advertise_not_https" "Nodes reach the control plane over TLS" {
    doc: "The URL of `--advertise` has another scheme than https",
}
AgentMissing "agent_missing" "The node agent's executable is missing" {
    doc: "It stands neither beside this program nor where `--agent-binary` says",
}
AgentNotReady "agent_not_ready" "The agent did not come to be measured" {
    doc: "`gpuaas bench agent` started an agent that did not enroll",
}
AgentUnreadable "agent_unreadable" "The node agent cannot be stored" {
    doc: "The executable that nodes are given cannot be read, or the data folder cannot take it",
}
AnswerUnprintable "answer_unprintable" "The answer could not be written down" {
    doc: "An answer has no text form; a defect of this program",
}
ApiNotServed "api_not_served" "The admin API cannot be served" {
    doc: "The listener of the admin API was closed by the system",
}
ApprovalNotCarriedOut "approval_not_carried_out" "What was agreed to was not done" {
    doc: "The request that an approval let go on was refused when it was carried out; the detail has the refusal",
}
ArchiveUnwritable "archive_unwritable" "The archive could not be saved" {
    doc: "The result of a task was fetched, and the file or folder cannot be written",
}
AttackFailed "attack_failed" "The attack of the benchmark does not run" {
    doc: "`gpuaas bench attack` could not start the control plane, or the attacker, or found requests failing before the attack",
}
AuditExportFailed "audit_export_failed" "The audit log cannot be written out" {
    doc: "The target of `gpuaas audit export` cannot be opened or takes no more, or the file of `gpuaas audit verify --file` cannot be read",
}
AuditTampered "audit_tampered" "The audit log is not as it was written" {
    doc: "`gpuaas audit verify` found a row that was changed, removed or put in",
}
BackupDamaged "backup_damaged" "The backup cannot be used" {
    doc: "The folder that `gpuaas restore BACKUP --reason TEXT` names is no backup, lacks a file or has one that is not as it was written",
}
BackupFailed "backup_failed" "The backup cannot be made" {
    doc: "`gpuaas backup --to DIR` cannot read the database or its keys, or cannot write the folder of the backup",
}
BackupKeyMissing "backup_key_missing" "The key of the backup is missing" {
    doc: "The keys in a backup are sealed: `gpuaas restore BACKUP --reason TEXT` wants the file that `--key-file` named for the backup, or the master key itself",
}
BatchIncomplete "batch_incomplete" "Not every machine of the batch became active" {
    doc: "A batch ended, and runs of it did not end as asked",
}
BenchmarkUnusable "benchmark_unusable" "The benchmark cannot be run here" {
    doc: "A program or a file that a benchmark measures with cannot be used; the detail names it",
}
BundleBroken "bundle_broken" "The bundle in this program is broken" {
    doc: "A bundle that is part of the executable cannot be read; a defect of the build",
}
BundleInputInvalid "bundle_input_invalid" "An input cannot be used" {
    doc: "A value does not fit what the bundle's manifest says of the input",
}
BundleInvalid "bundle_invalid" "The bundle cannot be used" {
    doc: "The folder breaks rules of bundles; the lines of the error name each",
}
BundleNameInvalid "bundle_name_invalid" "A bundle needs a name" {
    doc: "The name for a new bundle is not of lower-case letters, digits and hyphens",
}
BundlesNotFound "bundles_not_found" "There are no bundles to test" {
    doc: "`gpuaas bench gate` needs the folder of the bundles",
}
CaFileUnusable "ca_file_unusable" "What is to be trusted cannot be read" {
    doc: "`--server-ca-file`, or that of the context, is missing or holds no certificate",
}
CaseNotMade "case_not_made" "A case does not make its park" {
    doc: "`gpuaas bench mend`: what a case does did not stop its run, or was refused",
}
CaseStuck "case_stuck" "A run of a case does not move" {
    doc: "`gpuaas bench mend`: a run neither ended nor stopped in the time of its case",
}
ConfigFileInvalid "config_file_invalid" "The file of settings cannot be used" {
    doc: "The file that `gpuaas serve --config` names is no mapping of its options, or has one twice",
}
ContextFileUnusable "context_file_unusable" "The file of contexts cannot be used" {
    doc: "The file of contexts cannot be read or written by this user, or is not as it was written",
}
ContextNotFound "context_not_found" "There is no such context" {
    doc: "`--context`, `GPUAAS_CONTEXT` or a command about contexts names one that was not added",
}
ControlPlaneNotStarted "control_plane_not_started" "The control plane's own process could not be started" {
    doc: "The lab starts `gpuaas serve` as a process, and that ended before it served",
}
DataDiskFull "data_disk_full" "The disk of the data folder is full" {
    doc: "`gpuaas serve` cannot write to its data folder for want of space",
}
DatabaseInsecure "database_insecure" "The database would be reached in the clear" {
    doc: "PostgreSQL is on another host and its certificate is not verified, and no flag says that this may be",
}
DataInUse "data_in_use" "Another control plane uses this store" {
    doc: "One process owns the embedded database; PostgreSQL takes several",
}
CommandLineInvalid "command_line_invalid" "The command line is wrong" {
    doc: "A command, an option or a value is none that this program knows, or one is missing",
}
DataUnwritable "data_unwritable" "The data folder cannot be used" {
    doc: "The data folder cannot be made or written by this user",
}
DatabaseNotEmbedded "database_not_embedded" "The database is a server's" {
    doc: "`gpuaas backup --to DIR` copies the embedded database; PostgreSQL has its own program for that",
}
DatabaseUnwritable "database_unwritable" "The embedded store cannot be locked" {
    doc: "The file that marks the owner of the embedded database cannot be opened",
}
ExecutableUnknown "executable_unknown" "This program cannot find itself" {
    doc: "The system does not say where the running executable is",
}
EventsLost "events_lost" "Not every event came once" {
    doc: "`gpuaas bench failover` compared the stream of events with the timelines",
}
FaultsFound "faults_found" "Something is wrong with this control plane" {
    doc: "`gpuaas doctor` found faults; its table names each with what to do",
}
FaultFileUnusable "fault_file_unusable" "The fault file cannot be used" {
    doc: "The file of faults for the simulated region cannot be read, or names what does not exist",
}
FileUnreadable "file_unreadable" "A file cannot be read or written" {
    doc: "The file is missing, is there where it must not be, or is not this user's",
}
FleetNotChanged "fleet_not_changed" "The fleet cannot be changed" {
    doc: "`gpuaas bench people` could not do what a person does",
}
GateNotExact "gate_not_exact" "A gate did not see what it should" {
    doc: "`gpuaas bench gate`: a fault passed, or a good host was refused",
}
HostUnreachable "host_unreachable" "The host cannot be reached over ssh" {
    doc: "ssh ended before it ran anything on the host",
}
HostsDirUnwritable "hosts_dir_unwritable" "The hosts' folder cannot be made" {
    doc: "Simulated hosts keep files in a folder that this user cannot make",
}
HostsNotLocal "hosts_not_local" "Hosts run as processes for this machine only" {
    doc: "A simulated region that others can reach would run what they deploy as processes of this machine",
}
HostsUnguarded "hosts_unguarded" "bash cannot be started" {
    doc: "Processes of simulated hosts are ended through bash, and there is none",
}
HttpUnavailable "http_unavailable" "No HTTP client can be made" {
    doc: "The TLS library or the system's resolver refuses its configuration",
}
ImageBaseUntrusted "image_base_untrusted" "The base is not what its publisher signed" {
    doc: "A cloud image has another digest than its list of checksums says, or no key of the recipe's keyring has signed the list",
}
ImageBootTestFailed "image_boot_test_failed" "The image was not booted" {
    doc: "A program that unpacks the archive or makes the machine's disk ended with an error or did not end in time",
}
ImageBootTestImpossibleHere "image_boot_test_impossible_here" "This host cannot boot images" {
    doc: "A program that a boot test runs is not installed, or who tests is not root",
}
ImageBuildFailed "image_build_failed" "A step of the build failed" {
    doc: "A program that makes an image ended with an error or did not end in time",
}
ImageBuildHostUnfit "image_build_host_unfit" "The build host cannot build this" {
    doc: "The host that is to build is not reached over ssh, has another version of gpuaas, or gave back another archive than it built",
}
ImageBuildImpossibleHere "image_build_impossible_here" "This host cannot build images" {
    doc: "A program that builds need is not installed, or who builds is not root",
}
ImageBuildRunning "image_build_running" "Another build runs" {
    doc: "Another process builds with the same folder of layers",
}
ImageChanged "image_changed" "The archive changed while it was tried" {
    doc: "A statement is about the bytes that were tried, and the file has others by now",
}
ImageEntryUnfit "image_entry_unfit" "The tree has a name that no archive holds" {
    doc: "A name or an attribute of the tree cannot be said in a tar archive",
}
ImageFaulty "image_faulty" "The image has faults" {
    doc: "`gpuaas image lint FILE` found what MAAS, curtin or the first boot would fail on; each finding names its fix",
}
ImageNotBootable "image_not_bootable" "The image does not boot well" {
    doc: "`gpuaas image boot-test FILE` saw a machine or a container that does not come up, or lacks what a host needs; each problem says what was seen",
}
ImageOverrideInvalid "image_override_invalid" "An override cannot be used" {
    doc: "A value does not fit its override, or a name that begins with `GPUAAS_MAAS_HOST_IMAGE_` is none of the table in docs/reference/image-overrides.md",
}
ImagePackageMissing "image_package_missing" "A required package is not available" {
    doc: "The archive of packages has none of that name",
}
ImageRecipeInvalid "image_recipe_invalid" "The recipe cannot be used" {
    doc: "A recipe has a field that recipes do not have, a value that does not fit, or leaves nothing to do",
}
ImageRepositoryUntrusted "image_repository_untrusted" "An archive of packages is not signed by whom the recipe names" {
    doc: "The keys that an archive beside the base's own serves have other fingerprints than the recipe says, or the archive's index is signed by none of them",
}
ImageSourceUnreachable "image_source_unreachable" "The archive of packages does not answer" {
    doc: "Its signed index cannot be fetched, or is none",
}
ImageTreeChanged "image_tree_changed" "The tree changed while it was packed" {
    doc: "A file became longer or shorter; something runs in the tree",
}
ImageTreeMounted "image_tree_mounted" "Something is mounted in the tree" {
    doc: "A folder of the tree is another file system, such as /proc of a chroot",
}
ImageTreeUnreadable "image_tree_unreadable" "The tree cannot be read" {
    doc: "The folder is not there, or a file of it belongs to somebody else or cannot be read",
}
ImageUnreadable "image_unreadable" "The image cannot be read" {
    doc: "The file is not there, or the disk does not give it back",
}
ImageUnwritable "image_unwritable" "The image cannot be written" {
    doc: "The folder is not there or not this user's, or the disk is full",
}
ImageUploadBaseMissing "image_upload_base_missing" "The region lacks an image that this one needs" {
    doc: "Custom images are deployed with the system that machines are commissioned with, and count as a system that the region has synced; one of them is not there",
}
ImageUploadClock "image_upload_clock" "The clocks of this host and the region differ" {
    doc: "A region refuses calls that were signed more than 300 seconds before they arrive",
}
ImageUploadDamaged "image_upload_damaged" "The image did not arrive as it was sent" {
    doc: "The region has other bytes than the file's: somebody else's, a piece twice, or another digest; it is not complete, so no machine gets it",
}
ImageUploadFileChanged "image_upload_file_changed" "The file is another than the one that was begun" {
    doc: "An upload of this file was begun, and its content has changed since",
}
ImageUploadNameTaken "image_upload_name_taken" "The region has an image of this name" {
    doc: "A name that is announced again loses its files at once, also while machines deploy it, so it never is",
}
ImageUploadNoAnswer "image_upload_no_answer" "The region does not answer" {
    doc: "The region was away for longer than an upload waits; what it has of the image stays there",
}
ImageUploadNotCopied "image_upload_not_copied" "Not all region controllers have the image" {
    doc: "One region controller has the whole image and others have not copied it within an hour; until then it is not complete",
}
ImageUploadNotPermitted "image_upload_not_permitted" "The key is no administrator's" {
    doc: "Only an administrator of the region uploads images",
}
ImageUploadRefused "image_upload_refused" "MAAS refuses the upload" {
    doc: "The region refused a call, or cannot be called as the command line says",
}
ImageUploadRunning "image_upload_running" "The file is being uploaded" {
    doc: "Another process uploads this file to this site; two would mix their pieces",
}
ImageUploadStateUnusable "image_upload_state_unusable" "The upload's state cannot be used" {
    doc: "What was sent of a file is kept beside it, and that cannot be read or written, or is of another region",
}
InvariantBroken "invariant_broken" "What must always hold did not" {
    doc: "`gpuaas bench chaos` found a machine lost, doubled or stuck",
}
LabFolderUnusable "lab_folder_unusable" "The lab's folder cannot be used" {
    doc: "A file of the lab cannot be read or written",
}
LabInterrupted "lab_interrupted" "The lab was interrupted" {
    doc: "The same command within ten minutes goes on where it was",
}
LabMissing "lab_missing" "The laboratory is not installed" {
    doc: "`gpuaas lab`, `gpuaas maas-sim` and the benchmarks are in the executable gpuaas-lab, beside gpuaas",
}
LabRunning "lab_running" "A lab is running in this folder" {
    doc: "One lab at a time owns the folder",
}
LabUnfinished "lab_unfinished" "Another lab is unfinished in this folder" {
    doc: "The folder holds the machines of a lab with other options",
}
LogFilterInvalid "log_filter_invalid" "The log filter cannot be used" {
    doc: "`--log` takes levels and targets, such as `info` or `gpuaas_engine=debug`",
}
LoopEnded "loop_ended" "A loop of the control plane ended" {
    doc: "A part of `gpuaas serve` that runs for ever ended, and the process with it",
}
MachineNotListed "machine_not_listed" "The file does not name the host" {
    doc: "`--machines` names a file, and a host of the command line is none of its machines",
}
ManifestUnreadable "manifest_unreadable" "The manifest cannot be read" {
    doc: "The manifest of a batch is not YAML, or has fields that manifests do not have",
}
MasterKeyMissing "master_key_missing" "The master key of the database is missing" {
    doc: "A database is there, and the file of the key that its secrets are sealed with is not",
}
MutationImpossible "mutation_impossible" "The test host cannot be changed so" {
    doc: "`gpuaas bench gate` could not make a fault",
}
NetworkInvalid "network_invalid" "A network cannot be used" {
    doc: "A network is not an address with a prefix length",
}
NoFreePort "no_free_port" "No port can be listened on" {
    doc: "The system gave no free port of the loopback address",
}
NatsUrlInvalid "nats_url_invalid" "The URL of NATS cannot be used" {
    doc: "`--nats` of `gpuaas serve` takes a nats or tls URL",
}
NodeListenerUnusable "node_listener_unusable" "The listener for nodes cannot be opened" {
    doc: "Its certificate or its socket cannot be used",
}
NodesNotActive "nodes_not_active" "Not every node became active" {
    doc: "A lab or a measurement ended, and nodes of it are not active",
}
NotARequest "not_a_request" "The command is no request to a control plane" {
    doc: "A command that was to be sent as a request has none; a defect of this program",
}
NotConfirmed "not_confirmed" "Nothing was done" {
    doc: "What destroys is done after `--yes` or a yes at the prompt",
}
OneHostWanted "one_host_wanted" "A BMC or MAC address belongs to one host" {
    doc: "Several hosts are named together with values that only one can have",
}
OperatorListenerUnusable "operator_listener_unusable" "The listener for operators cannot be opened" {
    doc: "Its certificate cannot be used for TLS",
}
PresetNotFound "preset_not_found" "There is no such preset" {
    doc: "`gpuaas profile presets` lists those that this program has",
}
ProviderUnreachable "provider_unreachable" "The identity provider cannot be asked" {
    doc: "It does not answer, or not as a provider of OpenID Connect with a device flow does",
}
RealHostNeedsRoot "real_host_needs_root" "This machine can have no real hosts" {
    doc: "A host with its own systemd needs namespaces and mounts",
}
RealHostNotMade "real_host_not_made" "A real host could not be made" {
    doc: "The folder of the host cannot be written",
}
RealHostRootfsMissing "real_host_rootfs_missing" "There is no system for real hosts" {
    doc: "The root filesystem of the hosts has not been made",
}
RealHostToolMissing "real_host_tool_missing" "This machine can have no real hosts yet" {
    doc: "A program that makes hosts is not installed",
}
RegistryArtifactRefused "registry_artifact_refused" "The registry holds something else than a bundle there" {
    doc: "What the reference names is not an artifact of one bundle archive",
}
RegistryLoginMissing "registry_login_missing" "There is no login to the registry" {
    doc: "The registry wants a login, and Docker's configuration has none for it",
}
RegistryLoginRefused "registry_login_refused" "The registry refuses the login" {
    doc: "Name or password are wrong, or do not suffice for the repository",
}
RegistryLoginUnknown "registry_login_unknown" "The registry wants a login of another kind" {
    doc: "It asks for neither Basic nor Bearer",
}
RegistryLoginUnsafe "registry_login_unsafe" "The login would be read on the way" {
    doc: "The registry, or where it sends logins, has no TLS or belongs to somebody else",
}
RegistryLoginUnusable "registry_login_unusable" "The login to the registry cannot be used" {
    doc: "Docker's configuration keeps it where this program does not read it",
}
RegistryReferenceMissing "registry_reference_missing" "Which version?" {
    doc: "A reference has neither a tag nor a digest",
}
RegistryRefused "registry_refused" "The registry did not do it" {
    doc: "The registry answered with an error",
}
RegistrySilent "registry_silent" "The registry gave no answer" {
    doc: "The registry cannot be reached, or did not answer in time",
}
RegistryUrlInvalid "registry_url_invalid" "The registry's URL cannot be used" {
    doc: "The reference does not begin with the name of a host",
}
RunEnded "run_ended" "The run ended before that" {
    doc: "A run that was waited for ended without what was asked, and without a park",
}
RuntimeUnavailable "runtime_unavailable" "Threads cannot be started" {
    doc: "The system gives this user no further threads",
}
ScenarioNeedsHosts "scenario_needs_hosts" "The scenario needs fewer machines" {
    doc: "Each machine of the scenario is a host with processes of its own",
}
ScenarioNeedsNodes "scenario_needs_nodes" "The scenario needs more machines" {
    doc: "`--nodes` is below what the scenario is about",
}
ScenarioNotMet "scenario_not_met" "Not every node is as the scenario ends" {
    doc: "A lab ended, and nodes of it are not as the table of scenarios says",
}
ScenarioUnset "scenario_unset" "The scenario was not reached" {
    doc: "What a scenario begins with could not be brought about",
}
SchemaContracted "schema_contracted" "The database went on with a later version" {
    doc: "A later version took away what this one uses, once no control plane of this version ran any more",
}
SecretMalformed "secret_malformed" "The value is not of the form that the input wants" {
    doc: "An input that takes the hash of a password was given something else",
}
SecretMissing "secret_missing" "A file holds no secret" {
    doc: "The file of a secret is empty",
}
ServerCertificateUnusable "server_certificate_unusable" "A file of the listener cannot be used" {
    doc: "Certificate, key or anchor for nodes cannot be read or do not fit each other",
}
ServerSilent "server_silent" "The control plane gave no answer; whether it acted is not known" {
    doc: "The request was sent, and the connection ended or the time ran out before the answer",
}
ServerUnreachable "server_unreachable" "The control plane cannot be reached" {
    doc: "Nothing accepts connections at the URL",
}
ServerUntrusted "server_untrusted" "The certificate of the control plane is not trusted" {
    doc: "None of the authorities that this command trusts has signed it, or it is for another name",
}
ServerUrlInvalid "server_url_invalid" "The URL of the control plane cannot be used" {
    doc: "`--server` takes an http or https URL",
}
SignInEnded "sign_in_ended" "The sign-in is over" {
    doc: "The identity provider gives no further token for it: it was withdrawn, or is too old",
}
SignInFailed "sign_in_failed" "Nobody signed in" {
    doc: "The identity provider refused what `gpuaas login` asked for, nobody entered the code in time, or who did said no",
}
SignInNotOffered "sign_in_not_offered" "The control plane offers no sign-in" {
    doc: "It was started without `--oidc-client-id`, so `gpuaas login` has nobody to ask",
}
SignalsUnavailable "signals_unavailable" "Signals cannot be received" {
    doc: "The system does not let this process handle SIGINT and SIGTERM",
}
SigningKeyUnusable "signing_key_unusable" "The key that signs bundles cannot be used" {
    doc: "The key in the database is no Ed25519 key",
}
SimulationEnded "simulation_ended" "A simulation did not end well" {
    doc: "The thread of a simulation panicked",
}
SimulationNotMade "simulation_not_made" "The simulation cannot be made" {
    doc: "The store or the region of a simulation refused its beginning",
}
SimulatorNotStarted "simulator_not_started" "The simulated region could not be started" {
    doc: "The process of the simulated region ended before it served",
}
SimulatorSilent "simulator_silent" "The simulated region gave no answer" {
    doc: "The simulated region's own interface did not answer",
}
SocketActivationInvalid "socket_activation_invalid" "The sockets that systemd passes on cannot be used" {
    doc: "Each is a listening TCP socket, called `operators` or `nodes` (systemd.socket(5), `FileDescriptorName=`)",
}
SshMissing "ssh_missing" "ssh cannot be run" {
    doc: "There is no program ssh, or it cannot be started",
}
StandInsNotLocal "stand_ins_not_local" "Stand-ins speak in plain text" {
    doc: "Simulated hosts reach the control plane without TLS, which is for loopback addresses",
}
StoreMoved "store_moved" "The content of this store is elsewhere now" {
    doc: "`gpuaas migrate-store --from DIR --to URL` moved it to PostgreSQL; two control planes with one history would change the same machines",
}
TokenFileUnwritable "token_file_unwritable" "The file for the token cannot be made" {
    doc: "A token is shown once, so the file is made first, and nothing was asked of the control plane",
}
NothingToReset "nothing_to_reset" "There is no control plane's data here" {
    doc: "The database or the master key is not where the command looks, so this is not the control plane's host or not its folder; nothing was made",
}
VaultUnusable "vault_unusable" "The Vault does not give the master key" {
    doc: "The Vault that has the master key does not answer, is sealed, refuses the role, or has no such key",
}
StdoutUnwritable "stdout_unwritable" "The answer could not be written" {
    doc: "Standard output is closed or its disk is full",
}
StrayDeployments "stray_deployments" "MAAS holds what no node owns" {
    doc: "A lab or a measurement left machines deployed twice, or without a node",
}
SudoRefused "sudo_refused" "The user may not become root" {
    doc: "sudo on the host asks for a password, or does not know the user",
}
TelemetryNotConverged "telemetry_not_converged" "The telemetry edge is not as it should be" {
    doc: "A step on the host failed; the lines of the answer name it",
}
TestHostUnavailable "test_host_unavailable" "A test host cannot be made" {
    doc: "`gpuaas bench gate` or `bench topology` cannot write the files of its host",
}
TokenMissing "token_missing" "No admin token was given" {
    doc: "Neither `--token-file`, `GPUAAS_TOKEN` nor the default file has one",
}
TokenUnreadable "token_unreadable" "The admin token cannot be read" {
    doc: "The file of the token is missing, or is not this user's",
}
TookTooLong "took_too_long" "The host took too long" {
    doc: "A command over ssh did not end in its time",
}
ToolsMissing "tools_missing" "A program is missing" {
    doc: "`gpuaas bench gate` needs programs that are not installed",
}
ClaimsNotExact "claims_not_exact" "Claims of slots were not as they have to be" {
    doc: "`gpuaas bench claims`: a slot was claimed twice, a set is no partition or split over NUMA nodes, or a device leaked",
}
ReplicasWithoutServer "replicas_without_server" "Several replicas need a PostgreSQL server" {
    doc: "`gpuaas bench claims` with `--replicas` or `--kill-every`, and no `--database`: a file has one process",
}
SlicesNotClean "slices_not_clean" "Slices did not come back as they have to" {
    doc: "`gpuaas bench slices`: a slot was free with a tenant's data, a drive that lied was believed, or a domain was left",
}
TopologyNotExact "topology_not_exact" "A slot map was not as it has to be" {
    doc: "`gpuaas bench topology`: a fault had another code or none, a healthy host was blamed, or a device was in two slots",
}
TransferDiffers "transfer_differs" "What arrived is not what was read" {
    doc: "`gpuaas migrate-store --from DIR --to URL` compares rows and digests of each table before it keeps anything",
}
TransferSourceUnready "transfer_source_unready" "The store cannot be moved as it is" {
    doc: "The database of the folder is not there, is damaged, or has the tables of another version",
}
TransferTargetUsed "transfer_target_used" "The database is not empty" {
    doc: "`gpuaas migrate-store --from DIR --to URL` fills a database of its own; the one that is named has rows, or the tables of another version",
}
UnexpectedAnswer "unexpected_answer" "The answer is not a control plane's" {
    doc: "Something else answers at the URL, or another version of the control plane",
}
UnknownScenario "unknown_scenario" "There is no such scenario" {
    doc: "The help of the lab lists the scenarios",
}
UsageUnreadable "usage_unreadable" "Time and memory of a process cannot be read" {
    doc: "`/proc` does not tell what a measurement needs",
}
WaitInterrupted "wait_interrupted" "Only the waiting was interrupted" {
    doc: "The command was interrupted while it waited; the work goes on",
}
WaitTimedOut "wait_timed_out" "Not every run ended in time" {
    doc: "The time of `--wait` ran out; the work goes on",
}
}
