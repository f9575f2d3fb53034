//! An authority of the test's own and a server's certificate by it, made with `openssl`.

use crate::tools;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The files, in a directory that is removed with them.
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Makes an authority and a certificate of `localhost`, and of no address.
    pub fn make() -> Result<Self> {
        let made = Self { directory: tempfile::tempdir()? };
        let authority = ["-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=Test authority"];
        let of_authority = ["-addext", "keyUsage=critical,keyCertSign", "-addext", "basicConstraints=critical,CA:TRUE"];
        made.openssl(&[authority.as_slice(), &of_authority].concat())?;
        let server = ["-keyout", "server.key", "-out", "server.pem", "-subj", "/CN=localhost"];
        let of_server = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"];
        let signed = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        made.openssl(&[server.as_slice(), &of_server, &signed].concat())?;
        Ok(made)
    }

    /// The authority, to be trusted.
    pub fn authority(&self) -> PathBuf {
        self.file("authority.pem")
    }

    /// The options of a Redis that also listens for TLS on that port.
    pub fn redis_options(&self, port: u16) -> [(String, String); 5] {
        let file = |name: &str| self.file(name).display().to_string();
        [
            ("tls-port".to_owned(), port.to_string()),
            ("tls-cert-file".to_owned(), file("server.pem")),
            ("tls-key-file".to_owned(), file("server.key")),
            ("tls-ca-cert-file".to_owned(), file("authority.pem")),
            ("tls-auth-clients".to_owned(), "no".to_owned()),
        ]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn openssl(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(tools::openssl()?);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
        command.args(["-config"]).arg(configuration(self.directory.path())?).args(arguments);
        let output = command.current_dir(self.directory.path()).output().context("starting openssl")?;
        ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// The machine's own would add extensions.
fn configuration(directory: &Path) -> Result<PathBuf> {
    let file = directory.join("openssl.cnf");
    std::fs::write(&file, "[req]\ndistinguished_name = name\n[name]\n")?;
    Ok(file)
}
