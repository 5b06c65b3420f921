#!/bin/bash
# The kernel's arguments for passthrough, in /etc/default/grub and in a drop-in: a cloud image's own
# drop-in overrides the first, and a tool that edits the first does not know of drop-ins.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

arguments=("$GPUAAS_SLICE_IOMMU_ARGUMENT" "$GPUAAS_SLICE_PASSTHROUGH_ARGUMENT")
grub=/etc/default/grub
drop_in=/etc/default/grub.d/60-gpuaas-slice.cfg
variable=GRUB_CMDLINE_LINUX_DEFAULT

# The line of the file with what is missing added; the rest as it is.
completed() {
    local line value argument found=0 file
    file=$(at "$grub")
    while IFS= read -r line || [[ -n $line ]]; do
        if [[ $line =~ ^$variable=[\"\']?([^\"\']*)[\"\']?[[:space:]]*$ ]]; then
            value=${BASH_REMATCH[1]} found=1
            for argument in "${arguments[@]}"; do
                if [[ " $value " != *" $argument "* ]]; then value="${value:+$value }$argument"; fi
            done
            line="$variable=\"$value\""
        fi
        printf '%s\n' "$line"
    done < <(if [[ -f $file ]]; then cat -- "$file"; fi)
    if ((!found)); then printf '%s="%s"\n' "$variable" "${arguments[*]}"; fi
}

if live && ! command -v update-grub >/dev/null; then
    fail "there is no update-grub (package grub2-common): with another boot loader the arguments have to be set there"
fi
text=$(completed)
place "$grub" 0644 <<<"$text"
place "$drop_in" 0644 <<CFG
# Written by ${GPUAAS_BUNDLE%@*}: update-grub reads this as shell.
for argument in ${arguments[*]}; do
    case " \$$variable " in
        *" \$argument "*) ;;
        *) $variable="\$$variable \$argument" ;;
    esac
done
CFG
place /etc/modules-load.d/gpuaas-slice.conf 0644 <<<vfio-pci
after_change update-grub "$grub" "$drop_in" -- host_do update-grub

cmdline=$(at /proc/cmdline)
missing=()
for argument in "${arguments[@]}"; do
    if [[ ! -r $cmdline || " $(<"$cmdline") " != *" $argument "* ]]; then missing+=("$argument"); fi
done
if ((${#missing[@]})); then
    reboot_needed "the kernel was started without ${missing[*]}"
else
    reboot_not_needed
fi
