//! The credentials of a cluster, generated for each cluster: tokens, the signing key for the tokens of service accounts,
//! and the kubeconfig.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ALGORITHM, EcdsaKeyPair, KeyPair};

/// The first bytes of a public P-256 key in DER (RFC 5480): lengths, algorithm and curve. The point follows them.
const P256_PUBLIC_KEY: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The credentials that the API server accepts.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// The token of `admin`, in the group `system:masters`, with all permissions.
    pub(crate) admin: String,
    /// The token of `nobody`, who has only the permissions that every authenticated user has.
    pub(crate) nobody: String,
    /// The file that is passed to the API server as `--token-auth-file`.
    pub(crate) tokens: PathBuf,
    /// The private key for service accounts, as PEM.
    pub(crate) signing_key: PathBuf,
    /// The public key that belongs to `signing_key`. The public key needs a file of its own, because Kubernetes can derive public keys only from
    /// private keys in older formats.
    pub(crate) public_key: PathBuf,
}

impl Credentials {
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let random = SystemRandom::new();
        let (admin, nobody) = (token(&random)?, token(&random)?);
        let tokens = folder.join("tokens.csv");
        fs::write(&tokens, format!("{admin},admin,admin,\"system:masters\"\n{nobody},nobody,nobody\n"))?;
        let key = EcdsaKeyPair::generate_pkcs8(&ALGORITHM, &random);
        let key = key.map_err(|_| anyhow!("no randomness for a key"))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ALGORITHM, key.as_ref(), &random);
        let pair = pair.map_err(|error| anyhow!("the generated key: {error}"))?;
        let signing_key = folder.join("service-accounts.key");
        fs::write(&signing_key, pem("PRIVATE KEY", key.as_ref()))?;
        let public_key = folder.join("service-accounts.pub");
        let point = pair.public_key().as_ref();
        fs::write(&public_key, pem("PUBLIC KEY", &[&P256_PUBLIC_KEY, point].concat()))?;
        Ok(Self { admin, nobody, tokens, signing_key, public_key })
    }

    /// A kubeconfig with two contexts: `admin`, which is the current one, and `nobody`.
    pub(crate) fn kubeconfig(&self, url: &str, authority: &Path) -> String {
        let context = |user: &str| serde_json::json!({ "name": user, "context": { "cluster": "e2e", "user": user, "namespace": "default" } });
        let user = |name: &str, token: &str| serde_json::json!({ "name": name, "user": { "token": token } });
        // JSON is valid YAML.
        let file = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "admin",
            "clusters": [{ "name": "e2e", "cluster": { "server": url, "certificate-authority": authority } }],
            "contexts": [context("admin"), context("nobody")],
            "users": [user("admin", &self.admin), user("nobody", &self.nobody)],
        });
        format!("{file:#}\n")
    }
}

fn token(random: &SystemRandom) -> Result<String> {
    let mut bytes = [0; 16];
    random.fill(&mut bytes).map_err(|_| anyhow!("no randomness for a token"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("base64 is ASCII"));
    let lines: Vec<&str> = lines.collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_has_lines_of_64() {
        let text = pem("THING", &[0; 60]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], "-----BEGIN THING-----");
        assert_eq!((lines[1].len(), lines[2].len()), (64, 16));
    }

    #[test]
    fn tokens_differ() {
        let random = SystemRandom::new();
        assert_ne!(token(&random).unwrap(), token(&random).unwrap());
    }
}
