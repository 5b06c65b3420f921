//! Users that can log in, from `/etc/passwd`, `/etc/shadow` and their `authorized_keys`.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::root::HostRoot;

/// Lowest number of a person's account (`UID_MIN` of `login.defs`); root is one as well.
const FIRST_UID: u32 = 1000;
/// Numbers from here on are of nobody in particular.
const LAST_UID: u32 = 60_000;
/// Most accounts of a host.
const MAX_LOGINS: usize = 64;
/// Files with the keys of a user, below its home.
const KEY_FILES: [&str; 2] = [".ssh/authorized_keys", ".ssh/authorized_keys2"];

/// A person's account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// SSH public keys that open it.
    pub keys: u32,
    /// It has a password that is not locked; false as well where the host does not let it be read.
    pub password: bool,
}

impl HostRoot {
    /// Accounts of people and of root, in the order of `/etc/passwd`.
    pub(crate) fn logins(&self) -> Vec<Login> {
        let passwd = self.text("etc/passwd").unwrap_or_default();
        let shadow = self.text("etc/shadow").unwrap_or_default();
        let login = |line: &str| {
            let columns: Vec<&str> = line.split(':').collect();
            let [user, _, uid, _, _, home, ..] = columns[..] else { return None };
            let uid: u32 = uid.parse().ok()?;
            let person = uid == 0 || (FIRST_UID..LAST_UID).contains(&uid);
            let inside = home.starts_with('/') && !home.split('/').any(|part| part == "..");
            if !person || !inside {
                return None;
            }
            let keys = KEY_FILES.iter().map(|file| self.public_keys(&format!("{home}/{file}")));
            let keys = keys.sum();
            let user = parse::clean(user)?;
            let password = has_password(&shadow, &user);
            Some(Login { user, keys, password })
        };
        passwd.lines().filter_map(login).take(MAX_LOGINS).collect()
    }

    /// Lines of a file that hold a public key.
    fn public_keys(&self, path: &str) -> u32 {
        let text = self.text(path).unwrap_or_default();
        let is_key = |line: &&str| {
            let line = line.trim();
            let kind =
                |word: &str| ["ssh-", "ecdsa-", "sk-"].iter().any(|start| word.starts_with(start));
            !line.starts_with('#') && line.split_whitespace().any(kind)
        };
        u32::try_from(text.lines().filter(is_key).count()).unwrap_or(u32::MAX)
    }
}

/// Whether the shadow file has a hash for the user: what begins with `!` or `*` is locked.
fn has_password(shadow: &str, user: &str) -> bool {
    let line = shadow.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'));
    let hash = line.and_then(|rest| rest.split(':').next()).unwrap_or_default();
    !hash.is_empty() && !hash.starts_with(['!', '*'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_its_keys_and_whether_it_has_a_password() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        assert_eq!(root.logins(), []);
        let write = |path: &str, text: &str| {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write(
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nsshd:x:105:1::/run/sshd:/usr/sbin/nologin\n\
             ubuntu:x:1000:1000::/home/ubuntu:/bin/bash\nann:x:1001:1001::/home/ann:/bin/bash\n\
             out:x:1002:1::/home/../etc:/bin/sh\nnobody:x:65534:1::/nonexistent:/bin/sh\nbroken\n",
        );
        write("etc/shadow", "root:*:1::::::\nubuntu:!$6$x:1::::::\nann:$6$salt$hash:1::::::\n");
        let keys =
            "# ssh-rsa old\nssh-ed25519 AAAA a\n\nfrom=\"10.0.0.1\" ecdsa-sha2-nistp256 BB b\n";
        write("home/ubuntu/.ssh/authorized_keys", keys);
        let login = |user: &str, keys, password| Login { user: user.to_owned(), keys, password };
        let expected = [login("root", 0, false), login("ubuntu", 2, false), login("ann", 0, true)];
        assert_eq!(root.logins(), expected);
    }
}
