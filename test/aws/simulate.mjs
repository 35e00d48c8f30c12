// Reads a JSON list of requests with the policies that are in force, and writes what
// iam-simulate makes of each: "Allowed", "ImplicitlyDenied" or "ExplicitlyDenied".
import { runSimulation } from '@cloud-copilot/iam-simulate'
import { readFileSync } from 'node:fs'

const verdicts = []
for (const t of JSON.parse(readFileSync(0, 'utf8'))) {
  const answer = await runSimulation(
    {
      request: {
        principal: t.principal,
        action: t.request.action,
        resource: { resource: t.request.resource, accountId: t.owner },
        contextVariables: { 'aws:SecureTransport': 'true', ...t.request.context },
      },
      identityPolicies: t.identity ? [{ name: 'identity', policy: t.identity }] : [],
      resourcePolicy: t.resource ?? undefined,
      serviceControlPolicies: [],
      resourceControlPolicies: [],
    },
    {},
  )
  verdicts.push(answer.resultType === 'error' ? 'error: ' + JSON.stringify(answer.errors) : answer.overallResult)
}
process.stdout.write(JSON.stringify(verdicts))
