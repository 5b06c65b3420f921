// A provider of OpenID Connect for a test: node-oidc-provider on loopback, with device codes that are
// approved by a request, and keys that are rotated by another one.
// Arguments: the folder that oidc-provider is installed in. Prints `issuer: URL` once it listens.
import http from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const library = pathToFileURL(`${process.argv[2]}/node_modules/oidc-provider/lib/`).href;
const { default: Provider } = await import(`${library}index.js`);
const { default: MemoryAdapter } = await import(`${library}adapters/memory_adapter.js`);

const AUDIENCE = 'gpuaas';
const RESOURCE = 'urn:gpuaas';
const SCOPE = 'openid offline_access';
const GROUPS = { ann: ['gpu-ops'], root: ['gpu-admins'], guest: [] };

// The usual adapter keeps its entries per provider, and a provider is made anew with its keys.
class Shared extends MemoryAdapter {}

const ALGORITHMS = [
  ['ES256', 'ec', { namedCurve: 'P-256' }],
  ['RS256', 'rsa', { modulusLength: 2048 }],
];
let made = 0;

function newKey() {
  const [alg, kind, options] = ALGORITHMS[made++ % ALGORITHMS.length];
  const jwk = generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' });
  return { ...jwk, kid: randomUUID(), use: 'sig', alg };
}

let keys = [newKey()];
let provider;
let answer;

function build(issuer) {
  const { alg } = keys[0];
  provider = new Provider(issuer, {
    adapter: Shared,
    jwks: { keys },
    enabledJWA: { idTokenSigningAlgValues: ['ES256', 'RS256'] },
    clients: [{
      client_id: 'gpuaas-cli',
      token_endpoint_auth_method: 'none',
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
      redirect_uris: [],
      response_types: [],
      id_token_signed_response_alg: alg,
    }],
    scopes: ['openid', 'offline_access'],
    findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
    extraTokenClaims: async (_, token) => ({
      groups: GROUPS[token.accountId],
      preferred_username: `${token.accountId}@example.test`,
    }),
    features: {
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => RESOURCE,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: 'use', audience: AUDIENCE, accessTokenFormat: 'jwt', accessTokenTTL: 300,
          jwt: { sign: { alg } },
        }),
      },
    },
    cookies: { keys: [randomUUID()] },
    ttl: { DeviceCode: 600, IdToken: 300, Grant: 3600, Session: 3600, RefreshToken: 3600 },
  });
  answer = provider.callback();
}

// What a person does in the browser: enters the code, signs in, and says yes.
async function approve(query) {
  const userCode = query.get('user_code').replace(/[^0-9A-Z]/gi, '').toUpperCase();
  const code = await provider.DeviceCode.findByUserCode(userCode, { ignoreExpiration: true });
  const accountId = query.get('as');
  const grant = new provider.Grant({ accountId, clientId: code.clientId });
  grant.addOIDCScope(SCOPE);
  grant.addResourceScope(RESOURCE, 'use');
  const authTime = Math.floor(Date.now() / 1000);
  const grantId = await grant.save();
  Object.assign(code, { accountId, grantId, authTime, scope: SCOPE, resource: RESOURCE, claims: {} });
  await code.save();
}

const server = http.createServer(async (request, response) => {
  const url = new URL(request.url, 'http://127.0.0.1');
  try {
    if (url.pathname === '/_rotate') { // ?drop=1 withdraws the key before, too
      const fresh = newKey();
      keys = url.searchParams.get('drop') ? [fresh] : [fresh, keys[0]];
      build(provider.issuer);
      response.end('rotated');
    } else if (url.pathname === '/_approve') {
      await approve(url.searchParams);
      response.end('approved');
    } else {
      answer(request, response);
    }
  } catch (error) {
    response.writeHead(500);
    response.end(String(error.stack));
  }
});
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  build(issuer);
  console.log(`issuer: ${issuer}`);
});
