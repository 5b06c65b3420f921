//! A publisher on this machine, for tests: files over HTTP, and archives of packages with signed indices.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

/// The first of these programs that is not here.
pub(super) fn missing(tools: &[&'static str]) -> Option<&'static str> {
    let is_there = |tool: &str| {
        ["/usr/bin", "/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(tool).exists())
    };
    tools.iter().copied().find(|tool| !is_there(tool))
}

/// Runs a script in a folder; it has to end well.
pub(super) fn sh(folder: &Path, script: &str) {
    let output = Command::new("sh").args(["-euc", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Serves the files of a folder over HTTP, one request for each connection.
pub(super) fn serve(folder: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let folder = folder.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer(stream, &folder);
        }
    });
    format!("http://{address}")
}

fn answer(mut stream: TcpStream, folder: &Path) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let name = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let (status, body) = match fs::read(folder.join(name)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // A client that has what it wants may close.
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok();
}

/// Whose packages an archive has, and who signs it.
pub(super) struct Archive<'a> {
    /// Folder that it is written into.
    pub(super) folder: &'a Path,
    /// Its packages' names; each has one file, `/usr/share/NAME/here`.
    pub(super) packages: &'a [&'a str],
}

impl Archive<'_> {
    /// A flat archive, signed with a new key, which is `key.asc` beside its index.
    pub(super) fn flat(&self) {
        self.make_key();
        self.write_packages(".", self.packages);
        self.sign(".");
    }

    /// Makes the archive's key, and a file with it.
    pub(super) fn make_key(&self) {
        let script = r"mkdir -m 700 home
            gpg --homedir home --batch --quiet --pinentry-mode loopback --passphrase '' \
                --quick-gen-key archive ed25519 sign never
            gpg --homedir home --armor --export >key.asc";
        fs::create_dir_all(self.folder).unwrap();
        sh(self.folder, script);
    }

    /// Fingerprint of its key.
    pub(super) fn fingerprint(&self) -> String {
        let mut gpg = Command::new("gpg");
        gpg.arg("--homedir").arg(self.folder.join("home")).args(["--with-colons", "--list-keys"]);
        let listed = String::from_utf8(gpg.output().unwrap().stdout).unwrap();
        let line = listed.lines().find(|line| line.starts_with("fpr:")).unwrap();
        line.split(':').nth(9).unwrap().to_owned()
    }

    /// Builds packages, and their index in the folder `index`.
    pub(super) fn write_packages(&self, index: &str, packages: &[&str]) {
        fs::create_dir_all(self.folder.join(index)).unwrap();
        fs::write(self.folder.join(index).join("Packages"), "").unwrap();
        for name in packages {
            sh(
                self.folder,
                &format!(
                    r#"mkdir -p {name}/DEBIAN {name}/usr/share/{name}
                    echo {name} >{name}/usr/share/{name}/here
                    printf 'Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: x\n' >{name}/DEBIAN/control
                    dpkg-deb --root-owner-group --build {name} {name}.deb >/dev/null
                    {{ cat {name}/DEBIAN/control
                        echo "Filename: ./{name}.deb"
                        echo "Size: $(stat -c %s {name}.deb)"
                        echo "SHA256: $(sha256sum {name}.deb | cut -d' ' -f1)"
                        echo; }} >>{index}/Packages
                    rm -r {name}"#
                ),
            );
        }
    }

    /// Writes the index of what is below a folder, and signs it.
    pub(super) fn sign(&self, below: &str) {
        sh(
            &self.folder.join(below),
            &format!(
                r#"home={}
                {{ printf 'Date: Thu, 05 Nov 2026 09:00:00 UTC\nArchitectures: amd64\nSuite: stable\nCodename: stable\nComponents: main\nSHA256:\n'
                    find . -name Packages | sed 's,^\./,,' | while read -r file; do
                        echo " $(sha256sum $file | cut -d' ' -f1) $(stat -c %s $file) $file"
                    done; }} >Release
                gpg --homedir $home --batch --yes --quiet --pinentry-mode loopback --passphrase '' \
                    --clearsign --output InRelease Release"#,
                self.folder.join("home").display()
            ),
        );
    }
}

impl Drop for Archive<'_> {
    fn drop(&mut self) {
        // The agent of gpg goes by itself once its folder is gone; this is sooner.
        let mut end = Command::new("gpgconf");
        end.arg("--homedir").arg(self.folder.join("home")).args(["--kill", "all"]).status().ok();
    }
}
